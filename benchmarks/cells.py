"""What turns of fixed lengths and of the adaptive policy say: ratios by workload and concurrency.

A ratio is of two arms over the same prompts; a cell's is the median over its rounds. Its best fixed
length is the one with the highest median, picked after the fact: of several noisy lengths the
luckiest is picked, so that the comparison favours the fixed ones. Length 0 runs twice in a round,
as two arms; how far these differ is the noise that anything else is to be judged by.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deployments.bench.results import Goal, Spread
from policy.stats import StatsWindow

LEAST_TO_BEST_FIXED = 0.97
LEAST_TO_OFF = 0.98


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens per second of every arm over the same prompts."""

    fixed: Mapping[int, float]
    """By draft length; 0 is among them."""
    off_again: float
    """Length 0 once more."""
    adaptive: float

    def rate(self, draft_len: int) -> float:
        """Of a fixed length; length 0 had two turns, which count as one of twice the length."""
        rate = self.fixed[draft_len]
        return rate if draft_len else statistics.harmonic_mean([rate, self.off_again])


@dataclass(slots=True)
class Cell:
    """One workload at one concurrency."""

    workload: str
    concurrency: int
    rounds: list[Round] = field(default_factory=list)
    rounds_by_length: Counter[int] = field(default_factory=Counter)
    """Of the adaptive arm: rounds of one sequence by the table's length."""
    window: StatsWindow = field(default_factory=StatsWindow)
    """Of the adaptive arm."""
    explained: str = ""
    """What the policy said of its length at this batch size, after the last turn."""

    @property
    def lengths(self) -> list[int]:
        return sorted(self.rounds[0].fixed)

    @property
    def best_fixed(self) -> int:
        return max(self.lengths, key=self.median_rate)

    def median_rate(self, draft_len: int) -> float:
        return statistics.median(one.rate(draft_len) for one in self.rounds)

    def over(self, draft_len: int) -> Spread:
        """Adaptive over a fixed length."""
        return Spread.of([one.adaptive / one.rate(draft_len) for one in self.rounds])

    @property
    def off_over_off(self) -> Spread:
        return Spread.of([one.off_again / one.fixed[0] for one in self.rounds])

    @property
    def noise(self) -> float:
        """How far two turns of length 0 differ: the median over rounds, as a share."""
        return statistics.median(abs(one.off_again / one.fixed[0] - 1) for one in self.rounds)

    @property
    def verdict(self) -> str:
        """Whether both goals hold here; a miss that is smaller than the noise says nothing."""
        misses = (
            LEAST_TO_BEST_FIXED - self.over(self.best_fixed).median,
            LEAST_TO_OFF - self.over(0).median,
        )
        if max(misses) <= 0:
            return "holds"
        return "within noise" if max(misses) <= self.noise else "falls short"

    @property
    def shares_by_length(self) -> dict[int, float]:
        total = sum(self.rounds_by_length.values())
        return {length: n / total for length, n in sorted(self.rounds_by_length.items())}

    def as_json(self) -> dict[str, Any]:
        window = self.window
        seconds = window.draft_seconds + window.target_seconds + window.verify_seconds
        return {
            "workload": self.workload,
            "concurrency": self.concurrency,
            "rounds": len(self.rounds),
            "tokens_per_second": {
                **{f"{s}": asdict(Spread.of(self._rates(s))) for s in self.lengths},
                "adaptive": asdict(Spread.of([one.adaptive for one in self.rounds])),
            },
            "best_fixed": self.best_fixed,
            "ratio_to_best_fixed": asdict(self.over(self.best_fixed)),
            "ratio_to_off": asdict(self.over(0)),
            "off_again_over_off": asdict(self.off_over_off),
            "noise": self.noise,
            "verdict": self.verdict,
            "adaptive": {
                "share_of_rounds_by_table_length": {
                    f"{length}": share for length, share in self.shares_by_length.items()
                },
                "drafted_tokens_per_round": window.drafted_tokens / max(1, window.rounds),
                "accepted_tokens_per_round": window.accepted_tokens / max(1, window.rounds),
                "probes": window.probes,
                "probe_share_of_seconds": window.probe_seconds / seconds if seconds else 0.0,
                "explained": self.explained,
            },
        }

    def _rates(self, draft_len: int) -> list[float]:
        return [one.rate(draft_len) for one in self.rounds]


@dataclass(frozen=True, slots=True)
class Overall:
    """Over all cells. Minima are of the cells' median ratios; means are geometric, of the same,
    and 1 is no gain."""

    min_ratio_to_best_fixed: float
    min_ratio_to_off: float
    mean_gain_over_off: float
    best_single_fixed: int
    """The one draft length that does best over all cells together."""
    mean_gain_over_best_single_fixed: float

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> "Overall":
        """Of at least one cell, each with a round."""

        def mean(value: Callable[[Cell], float]) -> float:
            return math.exp(statistics.fmean(math.log(value(cell)) for cell in cells))

        single = max(
            cells[0].lengths,
            key=lambda s: mean(lambda cell: cell.median_rate(s) / cell.median_rate(0)),
        )
        return cls(
            min(cell.over(cell.best_fixed).median for cell in cells),
            min(cell.over(0).median for cell in cells),
            mean(lambda cell: cell.over(0).median),
            single,
            mean(lambda cell: cell.over(single).median),
        )

    def goals(self) -> list[Goal]:
        return [
            Goal(name, f">= {least}", measured, measured >= least)
            for name, measured, least in (
                ("min_ratio_to_best_fixed", self.min_ratio_to_best_fixed, LEAST_TO_BEST_FIXED),
                ("min_ratio_to_off", self.min_ratio_to_off, LEAST_TO_OFF),
            )
        ]
