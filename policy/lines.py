"""Measured curves: piecewise linear functions, and noise smoothed out of them. Pure."""

from collections.abc import Sequence
from itertools import pairwise


class Line:
    """A piecewise linear function of x >= 0 through points, the first of them at x = 0.

    Beyond the last point it rises as steeply as between the last two, or as on average if that is
    more: where noise has made the last stretch flat, more must not seem to be free.
    """

    __slots__ = ("_bends", "_start")

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        slopes = [(d - c) / (b - a) for (a, c), (b, d) in pairwise(zip(xs, ys, strict=True))]
        if slopes:
            slopes.append(max(slopes[-1], (ys[-1] - ys[0]) / xs[-1]))
        self._start = ys[0]
        self._bends: list[tuple[float, float]] = []
        before = 0.0
        for x, slope in zip(xs, slopes, strict=False):
            if slope != before:
                self._bends.append((x, slope - before))
                before = slope

    def __call__(self, x: float) -> float:
        value = self._start
        for bend, change in self._bends:
            if bend >= x:
                break
            value += change * (x - bend)
        return value

    def mean_over(self, step: float, tails: "Tails") -> float:
        """Mean of the function at step * M, M random: exact, since it is a sum of hinges."""
        value = self._start
        for bend, change in self._bends:
            value += change * step * tails.mean_beyond(bend / step)
        return value


class Tails:
    """Upper tails of a binomial number M of `count` trials that succeed with `chance`."""

    __slots__ = ("_mass", "_moment")

    def __init__(self, count: int, chance: float) -> None:
        shares = _binomial(count, chance)
        # Entry k: sums over M >= k of P(M) and of M * P(M).
        self._mass = [0.0] * (count + 2)
        self._moment = [0.0] * (count + 2)
        mass = moment = 0.0
        for m in range(count, -1, -1):
            mass += shares[m]
            moment += m * shares[m]
            self._mass[m], self._moment[m] = mass, moment

    def mean_beyond(self, least: float) -> float:
        """Mean of max(0, M - least), `least` >= 0."""
        first = int(least) + 1
        if first >= len(self._mass):
            return 0.0
        return self._moment[first] - least * self._mass[first]


def _binomial(count: int, chance: float) -> list[float]:
    """Probability of 0, 1, ..., `count` successes; from the likeliest one outwards, so that nothing
    that counts underflows."""
    shares = [0.0] * (count + 1)
    if chance <= 0.0 or chance >= 1.0:
        shares[count if chance >= 1.0 else 0] = 1.0
        return shares
    odds = chance / (1.0 - chance)
    likeliest = min(count, int((count + 1) * chance))
    shares[likeliest] = share = 1.0
    for m in range(likeliest, count):
        share *= odds * (count - m) / (m + 1)
        shares[m + 1] = share
        if share < _NEGLIGIBLE:
            break
    share = 1.0
    for m in range(likeliest, 0, -1):
        share *= m / ((count - m + 1) * odds)
        shares[m - 1] = share
        if share < _NEGLIGIBLE:
            break
    total = sum(shares)
    return [share / total for share in shares]


_NEGLIGIBLE = 1e-18


def rising(values: Sequence[float]) -> list[float]:
    """The nearest sequence, by least squares, that never falls (pool adjacent violators).

    >>> rising([1.0, 3.0, 2.0, 4.0])
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, times = pools.pop()
            total, count = total + before, count + times
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def between(points: Sequence[float], value: float) -> tuple[int, int, float]:
    """Indices of the points around a value, and its share of the way; at the ends it stays."""
    last = len(points) - 1
    if value <= points[0]:
        return 0, 0, 0.0
    if value >= points[last]:
        return last, last, 0.0
    index = next(i for i, point in enumerate(points) if point > value)
    low, high = points[index - 1], points[index]
    return index - 1, index, (value - low) / (high - low)


def along(xs: Sequence[float], ys: Sequence[float], value: float) -> float:
    """Linear between points; at the ends it stays."""
    low, high, share = between(xs, value)
    return ys[low] + share * (ys[high] - ys[low])
