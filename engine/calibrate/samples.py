"""What was measured at one point of a grid, and what it says."""

from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import NamedTuple

LEAST_REPEATS = 3
SETTLED_SPREAD = 0.03
"""Distance between the quartiles of a point's samples, as a share of their median."""


class Point(NamedTuple):
    batch_size: int
    draft_len: int
    context: int


class Seconds(NamedTuple):
    """Of one round of all sequences."""

    target: float
    draft: float


@dataclass(slots=True)
class Samples:
    """Rounds at one point."""

    warm_up: Seconds
    measured: list[Seconds] = field(default_factory=list)

    @property
    def quickest(self) -> float:
        """Of a round: what a noisy moment did not touch, told by few samples."""
        return min(sum(sample) for sample in (self.warm_up, *self.measured))

    @property
    def is_settled(self) -> bool:
        totals = [sum(sample) for sample in self.measured]
        if len(totals) < LEAST_REPEATS:
            return False
        low, middle, high = quantiles(totals, n=4, method="inclusive")
        return high - low <= SETTLED_SPREAD * middle

    @property
    def typical(self) -> Seconds:
        """What a round takes."""
        if len(self.measured) < LEAST_REPEATS:
            # One of two samples may be as bad as they come; noise only ever adds.
            return min(self.warm_up, *self.measured, key=sum)
        return Seconds(
            median(sample.target for sample in self.measured),
            median(sample.draft for sample in self.measured),
        )
