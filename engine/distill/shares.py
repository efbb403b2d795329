"""A share that was counted, with its confidence interval."""

import math
from dataclasses import dataclass

_Z = 1.959964
"""For 95 %."""


@dataclass(frozen=True, slots=True)
class Share:
    """`right` of `tried`.

    >>> print(Share(45, 100))
    45.0 % (35.6 to 54.8, of 100)
    """

    right: int
    tried: int

    @property
    def value(self) -> float:
        return self.right / self.tried if self.tried else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % (Wilson 1927), as if each trial were independent of the others."""
        if not self.tried:
            return 0.0, 1.0
        n, p = self.tried, self.value
        centre = p + _Z**2 / (2 * n)
        half = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n * n))
        scale = 1 + _Z**2 / n
        return (centre - half) / scale, (centre + half) / scale

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} % ({100 * low:.1f} to {100 * high:.1f}, of {self.tried})"

    def as_json(self) -> dict[str, float | int]:
        low, high = self.interval
        return {"right": self.right, "tried": self.tried, "low": low, "high": high}
