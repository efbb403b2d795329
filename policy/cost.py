"""What a round costs: seconds by sequences, draft length and context, as calibrated, and as
corrected by what traffic shows."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_LEAST_SECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class CostCell:
    """One measured point. Raises ValueError when something can't be."""

    batch_size: int
    """Sequences."""
    draft_len: int
    """Draft tokens of each."""
    context: int
    """Tokens before them, of each."""
    target_seconds: float
    """Of a target pass that verifies `draft_len` + 1 tokens of each, choosing included."""
    draft_seconds: float
    """Of drafting `draft_len` tokens for all; 0 at length 0."""

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("draft_len", 0), ("context", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number from {least} on, got {value!r}")
        for name, positive in (("target_seconds", True), ("draft_seconds", False)):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not math.isfinite(value)
                or value < 0
                or (positive and value == 0)
            ):
                raise ValueError(
                    f"{name} must be a {'positive' if positive else 'finite'} number of seconds, "
                    f"got {value!r}"
                )


@dataclass(frozen=True, slots=True)
class Calibration:
    """All points measured. At each (batch size, context) there is length 0, and somewhere another
    length. Raises ValueError otherwise."""

    cells: tuple[CostCell, ...]

    def __post_init__(self) -> None:
        places = [(c.batch_size, c.draft_len, c.context) for c in self.cells]
        if len(set(places)) < len(places):
            twice = next(place for place in places if places.count(place) > 1)
            raise ValueError(f"cells hold (batch_size, draft_len, context) {twice} twice")
        if not any(cell.draft_len for cell in self.cells):
            raise ValueError("cells hold no draft_len above 0")
        rows = {(c.batch_size, c.context) for c in self.cells}
        for batch_size, context in sorted(rows - {(b, x) for b, s, x in places if s == 0}):
            raise ValueError(
                f"cells hold no draft_len 0 at batch_size {batch_size}, context {context}"
            )

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({cell.batch_size for cell in self.cells}))

    @property
    def draft_lens(self) -> tuple[int, ...]:
        return tuple(sorted({cell.draft_len for cell in self.cells}))

    @property
    def contexts(self) -> tuple[int, ...]:
        return tuple(sorted({cell.context for cell in self.cells}))

    def as_json(self) -> dict[str, Any]:
        return {"cells": [asdict(cell) for cell in self.cells]}

    @classmethod
    def from_json(cls, value: object) -> "Calibration":
        """Raises ValueError for anything that `as_json` never made."""
        try:
            cells = value["cells"]  # type: ignore[index]
            return cls(tuple(CostCell(**cell) for cell in cells))
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a calibration: {error}") from None


@dataclass(frozen=True, slots=True)
class Correction:
    """What traffic showed at a batch size, against what was calibrated."""

    scale: float = 1.0
    """Of the target's seconds at length 0."""
    slope: float = 1.0
    """Of what draft tokens add to them, beyond `scale`."""
    draft_scale: float = 1.0
    """Of the seconds of drafting."""


class CostModel:
    """Seconds at any batch size, number of draft tokens and context. Immutable.

    Between measured points it is linear; beyond the largest batch size and length it goes on as it
    was, beyond the contexts it stays. Noise is smoothed: more sequences, or more draft tokens,
    never take less time (pool adjacent violators).
    """

    def __init__(
        self, calibration: Calibration, corrections: Mapping[int, Correction] | None = None
    ) -> None:
        self.calibration = calibration
        self._corrections = dict(sorted((corrections or {}).items()))
        self._target = {
            context: _surface(calibration, context, "target_seconds")
            for context in calibration.contexts
        }
        self._draft = {
            context: _surface(calibration, context, "draft_seconds")
            for context in calibration.contexts
        }

    def target_seconds(self, batch_size: int, num_drafted: float, context: float) -> float:
        """Of a target pass over `batch_size` sequences and `num_drafted` draft tokens in all."""
        length = num_drafted / batch_size
        plain = _at(self._target, batch_size, 0.0, context)
        whole = _at(self._target, batch_size, length, context) if length else plain
        fix = self.correction(batch_size)
        return max(_LEAST_SECONDS, fix.scale * (plain + fix.slope * (whole - plain)))

    def draft_seconds(self, batch_size: int, draft_len: float, context: float) -> float:
        """Of drafting `draft_len` tokens for each of `batch_size` sequences."""
        if not draft_len:
            return 0.0
        seconds = _at(self._draft, batch_size, draft_len, context)
        return max(0.0, self.correction(batch_size).draft_scale * seconds)

    def correction(self, batch_size: int) -> Correction:
        """Interpolated over the logarithm of the batch size."""
        sizes = list(self._corrections)
        if not sizes:
            return _NONE
        low, high, share = _between(sizes, batch_size, math.log)
        a, b = self._corrections[sizes[low]], self._corrections[sizes[high]]
        return Correction(
            _mix(a.scale, b.scale, share),
            _mix(a.slope, b.slope, share),
            _mix(a.draft_scale, b.draft_scale, share),
        )


_NONE = Correction()
_Curve = tuple[list[float], list[float]]
"""Lengths, rising, and seconds at them."""
_Surface = dict[int, _Curve]
"""By batch size, rising."""


def _surface(calibration: Calibration, context: int, name: str) -> _Surface:
    by_place = {
        (cell.batch_size, cell.draft_len): float(getattr(cell, name))
        for cell in calibration.cells
        if cell.context == context
    }
    # First over lengths, then over batch sizes: what is left out of order after that is little.
    for pick in (0, 1):
        lines: dict[int, list[tuple[int, int]]] = {}
        for place in sorted(by_place):
            lines.setdefault(place[pick], []).append(place)
        for places in lines.values():
            values = rising([by_place[place] for place in places])
            by_place.update(zip(places, values, strict=True))
    surface: _Surface = {}
    for (batch_size, length), seconds in sorted(by_place.items()):
        lengths, values = surface.setdefault(batch_size, ([], []))
        lengths.append(float(length))
        values.append(seconds)
    return surface


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


def _at(surfaces: dict[int, _Surface], batch_size: float, length: float, context: float) -> float:
    contexts = sorted(surfaces)
    low, high, share = _between(contexts, context)
    a = _on(surfaces[contexts[low]], batch_size, length)
    if not share:
        return a
    return _mix(a, _on(surfaces[contexts[high]], batch_size, length), share)


def _on(surface: _Surface, batch_size: float, length: float) -> float:
    sizes = list(surface)
    if len(sizes) == 1:
        return _along(surface[sizes[0]], length)
    index = min(max(1, bisect_right(sizes, batch_size)), len(sizes) - 1)
    below, above = sizes[index - 1], sizes[index]
    a = _along(surface[below], length)
    if batch_size == below:
        return a
    b = _along(surface[above], length)
    return max(0.0, _mix(a, b, (batch_size - below) / (above - below)))


def _along(curve: _Curve, length: float) -> float:
    lengths, seconds = curve
    if len(lengths) == 1:
        return seconds[0]
    index = min(max(1, bisect_right(lengths, length)), len(lengths) - 1)
    share = (length - lengths[index - 1]) / (lengths[index] - lengths[index - 1])
    return _mix(seconds[index - 1], seconds[index], share)


def _between(points: Sequence[int], value: float, scale: Any = float) -> tuple[int, int, float]:
    """Indices of the points around a value, and its share of the way; at the ends it stays."""
    index = bisect_right(points, value)
    if index == 0:
        return 0, 0, 0.0
    if index == len(points):
        return index - 1, index - 1, 0.0
    low, high = scale(points[index - 1]), scale(points[index])
    return index - 1, index, (scale(value) - low) / (high - low)


def _mix(a: float, b: float, share: float) -> float:
    return a + share * (b - a)
