"""What a measured grid says in the paper's terms, and what the paper's equation makes of it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deployments.bench.characterize import Point
from deployments.bench.results import Spread
from policy.cost import Calibration, CostCell
from policy.paper import CostFit, best_length, fit_cost, fit_power_law

_AS_IT_CAME = 0
"""The context of a cost cell: prompts are of several lengths and are not told apart."""


@dataclass(frozen=True, slots=True)
class Best:
    """The draft length that took the least time per token."""

    draft_len: int
    seconds_per_token: float
    gain: float
    """Times more tokens than at length 0; the median over repeats."""
    gain_spread: Spread


class PaperModel:
    """t_L(b, s), t_S(b) and l(s) as measured, the fit over them, and s* by measurement and by
    equation. Batch sizes without a cell at length 0 and another one are left out."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._cells: dict[tuple[int, int], list[Point]] = {}
        for point in points:
            self._cells.setdefault((point.batch_size, point.draft_len), []).append(point)
        sizes = sorted({size for size, _ in self._cells})
        self.batch_sizes = [s for s in sizes if (s, 0) in self._cells and len(self.lengths(s)) > 1]
        self.cost: CostFit | None = None
        if self.batch_sizes:
            self.cost = fit_cost(self._calibration(), _AS_IT_CAME)
        self.accepted = self._accepted()
        """l(s) by s: draft tokens kept in a round, over all batch sizes."""
        self.c, self.gamma = fit_power_law(list(self.accepted.items()))

    def lengths(self, batch_size: int) -> list[int]:
        """Those measured there."""
        return sorted(length for size, length in self._cells if size == batch_size)

    def seconds_per_token(self, batch_size: int, length: int) -> Spread:
        """Over the repeats."""
        return Spread.of([p.seconds_per_token for p in self._cells[batch_size, length]])

    def target_seconds(self, batch_size: int, length: int) -> float:
        """t_L: the median over the repeats."""
        return statistics.median(p.target_seconds for p in self._cells[batch_size, length])

    def draft_seconds(self, batch_size: int, length: int) -> float:
        """Of drafting in a step, in all."""
        return statistics.median(p.draft_seconds / p.steps for p in self._cells[batch_size, length])

    def best(self, batch_size: int) -> Best:
        length = min(
            self.lengths(batch_size), key=lambda s: self.seconds_per_token(batch_size, s).median
        )
        gains = self.gains(batch_size, length)
        return Best(length, self.seconds_per_token(batch_size, length).median, gains.median, gains)

    def gains(self, batch_size: int, length: int) -> Spread:
        """Tokens a second over those at length 0, repeat by repeat."""
        plain = {p.repeat: p.seconds_per_token for p in self._cells[batch_size, 0]}
        return Spread.of(
            [
                plain[p.repeat] / p.seconds_per_token
                for p in self._cells[batch_size, length]
                if p.repeat in plain
            ]
            or [plain[min(plain)] / self.seconds_per_token(batch_size, length).median]
        )

    def by_equation(self, batch_size: int) -> float:
        """The paper's s*, with its one beta for all batch sizes."""
        assert self.cost is not None
        return self._root(batch_size, self.cost.alpha[batch_size], self.cost.beta)

    def by_own_line(self, batch_size: int) -> float:
        """The same equation with each batch size's own beta."""
        assert self.cost is not None
        return self._root(
            batch_size, self.cost.alpha_by_batch[batch_size], self.cost.beta_by_batch[batch_size]
        )

    def _root(self, batch_size: int, alpha: float, beta: float) -> float:
        assert self.cost is not None
        t_s = self.cost.draft_seconds[batch_size]
        longest = max(self.lengths(batch_size))
        return best_length(alpha, beta, t_s, self.c, self.gamma, longest)

    def _calibration(self) -> Calibration:
        return Calibration(
            tuple(
                CostCell(
                    size,
                    length,
                    _AS_IT_CAME,
                    self.target_seconds(size, length),
                    self.draft_seconds(size, length) if length else 0.0,
                )
                for size in self.batch_sizes
                for length in self.lengths(size)
            )
        )

    def _accepted(self) -> dict[int, float]:
        kept: dict[int, int] = {}
        rounds: dict[int, int] = {}
        for (_, length), points in sorted(self._cells.items()):
            if length:
                kept[length] = kept.get(length, 0) + sum(p.accepted for p in points)
                rounds[length] = rounds.get(length, 0) + sum(p.rounds for p in points)
        return {length: kept[length] / rounds[length] for length in sorted(kept) if rounds[length]}
