"""Whether a process's memory stays as it is. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Sample = tuple[float, int]
"""Seconds since the load began, bytes."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Medians over equal parts of the time, in order: one large request hardly moves them."""

    medians: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[Sample], warm_up_s: float, count: int = 5) -> "Windows | None":
        """Of what comes after the warm-up; None where a window would be empty."""
        late = [sample for sample in samples if sample[0] >= warm_up_s]
        if len(late) < count:
            return None
        begin, end = late[0][0], late[-1][0]
        width = (end - begin) / count or 1.0
        parts: list[list[int]] = [[] for _ in range(count)]
        for seconds, num_bytes in late:
            parts[min(count - 1, int((seconds - begin) / width))].append(num_bytes)
        if not all(parts):
            return None
        return cls(tuple(float(statistics.median(part)) for part in parts))

    @property
    def change(self) -> float:
        """Of the window that differs most from the first one, as a share of that."""
        first = self.medians[0]
        return max((median / first - 1 for median in self.medians), key=abs)
