"""The paper's own model of a round, fitted, and its best draft length (Su, Giannoula, Pekhimenko
2023, arXiv 2310.18813): t_L(b, s) = alpha_b * s + beta, t_S(b), l(s) = c * s^gamma.

The policy decides by measured cost (`optimize.py`); this stands beside it to say how well the
paper's form describes a machine, and what it would choose.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policy.cost import Calibration

_LEAST_GAMMA, _MOST_GAMMA = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class CostFit:
    """t_L(b, s) = alpha_b * s + beta, in seconds, at one context length."""

    alpha: Mapping[int, float]
    """By batch size."""
    beta: float
    """One for all batch sizes, as in the paper."""
    error: float
    """Root of the mean square of the relative error over the points measured."""
    alpha_by_batch: Mapping[int, float]
    beta_by_batch: Mapping[int, float]
    """Each batch size's own line."""
    error_by_batch: float
    """The error with those."""
    draft_seconds: Mapping[int, float]
    """t_S(b): of one draft token for all of b sequences."""


def fit_cost(calibration: Calibration, context: int) -> CostFit:
    """By least squares of the relative error. Raises ValueError when nothing was measured at
    `context`."""
    points: dict[int, list[tuple[int, float]]] = {}
    drafts: dict[int, list[tuple[int, float]]] = {}
    for cell in calibration.cells:
        if cell.context == context:
            points.setdefault(cell.batch_size, []).append((cell.draft_len, cell.target_seconds))
            if cell.draft_len:
                drafts.setdefault(cell.batch_size, []).append((cell.draft_len, cell.draft_seconds))
    if not points:
        raise ValueError(f"context {context} was not measured, only {calibration.contexts}")
    own = {b: _line(pairs) for b, pairs in points.items()}
    beta = _common_beta(points)
    alpha = {b: _through(pairs, beta) for b, pairs in points.items()}
    return CostFit(
        alpha,
        beta,
        _error(points, {b: (alpha[b], beta) for b in points}),
        {b: line[0] for b, line in own.items()},
        {b: line[1] for b, line in own.items()},
        _error(points, own),
        {b: _through(pairs, 0.0) for b, pairs in drafts.items()},
    )


def fit_power_law(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """c and gamma of l(s) = c * s^gamma through (s, l(s)), by least squares of the logarithms;
    gamma at most 1, since no position is likelier kept than the one before."""
    some = [(math.log(s), math.log(kept)) for s, kept in points if kept > 0]
    if not some:
        return 0.0, 1.0
    if len(some) == 1:
        # One position seen: as if each next one were kept as often.
        first = math.exp(some[0][1])
        gamma = math.log2(1.0 + first)
        return first, min(_MOST_GAMMA, max(_LEAST_GAMMA, gamma))
    mean_x = sum(x for x, _ in some) / len(some)
    mean_y = sum(y for _, y in some) / len(some)
    spread = sum((x - mean_x) ** 2 for x, _ in some)
    gamma = sum((x - mean_x) * (y - mean_y) for x, y in some) / spread
    gamma = min(_MOST_GAMMA, max(_LEAST_GAMMA, gamma))
    return math.exp(mean_y - gamma * mean_x), gamma


def seconds_per_token(
    alpha: float, beta: float, t_s: float, c: float, gamma: float, s: float
) -> float:
    """T(b, s) = (t_L(b, s) + s * t_S(b)) / (l(s) + 1)."""
    return float((alpha * s + beta + s * t_s) / (c * s**gamma + 1.0))


def best_length(
    alpha: float, beta: float, t_s: float, c: float, gamma: float, longest: float
) -> float:
    """The s in (0, longest] with dT/ds = 0:

        (alpha_b + t_S) / beta = c * gamma * s^(gamma - 1) / (c * (1 - gamma) * s^gamma + 1)

    The right side falls in s. Where it is above the left one up to `longest`, that is the answer;
    0.0 where not even the best such s, nor s = 1, beats s = 0: for gamma < 1 the right side has no
    bound at s -> 0, so that the root alone would never say that drafting does not pay.
    """
    if c <= 0 or longest <= 0 or beta <= 0:
        return 0.0
    left = (alpha + t_s) / beta

    def gap(s: float) -> float:
        return float(c * gamma * s ** (gamma - 1) / (c * (1 - gamma) * s**gamma + 1)) - left

    low, high = 1e-9, longest
    if gap(high) >= 0:
        root = longest
    elif gap(low) <= 0:
        return 0.0
    else:
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if gap(middle) > 0 else (low, middle)
        root = (low + high) / 2

    def per_token(s: float) -> float:
        return seconds_per_token(alpha, beta, t_s, c, gamma, s)

    # A draft of less than one token can't be made.
    return root if per_token(max(1.0, root)) < per_token(0.0) else 0.0


def _line(pairs: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Slope and height; the relative error counts, at small batches as much as at large ones."""
    weights = [1 / t**2 for _, t in pairs]
    total = sum(weights)
    mean_s = sum(w * s for w, (s, _) in zip(weights, pairs, strict=True)) / total
    mean_t = sum(w * t for w, (_, t) in zip(weights, pairs, strict=True)) / total
    spread = sum(w * (s - mean_s) ** 2 for w, (s, _) in zip(weights, pairs, strict=True))
    along = sum(w * (s - mean_s) * t for w, (s, t) in zip(weights, pairs, strict=True))
    alpha = along / spread if spread else 0.0
    return alpha, mean_t - alpha * mean_s


def _through(pairs: Sequence[tuple[int, float]], beta: float) -> float:
    square = sum((s / t) ** 2 for s, t in pairs if t)
    return sum(s * (t - beta) / t**2 for s, t in pairs if t) / square if square else 0.0


def _common_beta(points: Mapping[int, Sequence[tuple[int, float]]]) -> float:
    """The beta that is best with each batch size's best alpha."""
    above = below = 0.0
    for pairs in points.values():
        square = sum((s / t) ** 2 for s, t in pairs)
        slope = sum(s / t**2 for s, t in pairs) / square if square else 0.0
        own = sum(s / t for s, t in pairs) / square if square else 0.0
        for s, t in pairs:
            rest = 1.0 - slope * s
            above += rest * (t - own * s) / t**2
            below += (rest / t) ** 2
    return above / below


def _error(
    points: Mapping[int, Sequence[tuple[int, float]]],
    lines: Mapping[int, tuple[float, float]],
) -> float:
    squares = [
        ((lines[b][0] * s + lines[b][1]) / t - 1.0) ** 2
        for b, pairs in points.items()
        for s, t in pairs
    ]
    return math.sqrt(sum(squares) / len(squares))
