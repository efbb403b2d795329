"""Measured seconds as a smooth surface over sequences, draft length and context. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from policy.lines import Line, along, between, rising


class Point(NamedTuple):
    """A measured point, and its seconds."""

    batch_size: int
    draft_len: int
    context: int
    seconds: float


_Row = list[float]
"""Seconds at each of the surface's lengths."""
_Rows = dict[int, _Row]
"""By batch size, rising."""


class Surface:
    """Linear between measured points; noise is smoothed: neither more sequences nor more draft
    tokens take less time (pool adjacent violators). What was not measured is filled in:

    - Lengths beyond a batch size's last as `Line` goes on, within what other batch sizes took.
    - In other contexts than the one with most points, the distance from that one: a context adds
      reading of its tokens, and leaves the shape over lengths as it is.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        measured: dict[int, dict[int, dict[int, float]]] = {}
        for batch_size, draft_len, context, seconds in sorted(points):
            measured.setdefault(context, {}).setdefault(batch_size, {})[draft_len] = seconds
        self.lengths = sorted(
            {s for rows in measured.values() for row in rows.values() for s in row}
        )
        first = max(
            measured, key=lambda context: sum(len(row) for row in measured[context].values())
        )
        base = self._fill_lengths(measured[first])
        self._rows = {
            context: base if context == first else self._beside(base, measured[context])
            for context in sorted(measured)
        }

    def at(self, batch_size: int, context: float) -> _Row:
        """Seconds at each of `lengths`. Contexts beyond those measured cost what the nearest does,
        batch sizes beyond the largest go on as between the last two."""
        contexts = list(self._rows)
        low, high, share = between(contexts, context)
        row = _row_at(self._rows[contexts[low]], batch_size)
        return _mix(row, _row_at(self._rows[contexts[high]], batch_size), share) if share else row

    def _fill_lengths(self, measured: Mapping[int, Mapping[int, float]]) -> _Rows:
        rows = {}
        for batch_size, row in measured.items():
            line = Line(list(row), list(row.values()))
            rows[batch_size] = [row.get(length, line(length)) for length in self.lengths]
        return self._smooth(rows, measured)

    def _beside(self, base: _Rows, measured: Mapping[int, Mapping[int, float]]) -> _Rows:
        extras = {}
        for batch_size, known in measured.items():
            below = dict(zip(self.lengths, _row_at(base, batch_size), strict=True))
            more = [seconds - below[length] for length, seconds in known.items()]
            extras[batch_size] = [along(list(known), more, length) for length in self.lengths]
        rows = {}
        for batch_size in sorted({*base, *measured}):
            row = [
                below + extra
                for below, extra in zip(
                    _row_at(base, batch_size), _extra_at(extras, batch_size), strict=True
                )
            ]
            own = measured.get(batch_size, {})
            rows[batch_size] = [own.get(s, row[i]) for i, s in enumerate(self.lengths)]
        return self._smooth(rows, measured)

    def _smooth(self, rows: _Rows, measured: Mapping[int, Mapping[int, float]]) -> _Rows:
        sizes = list(rows)
        for index, length in enumerate(self.lengths):
            for size in sizes:
                if length not in measured.get(size, {}):
                    # A guess moves nothing that was measured.
                    less = [
                        row[length] for b, row in measured.items() if b < size and length in row
                    ]
                    more = [
                        row[length] for b, row in measured.items() if b > size and length in row
                    ]
                    held = max([rows[size][index], *less])
                    rows[size][index] = min([held, *more])
        # Order over lengths survives the smoothing over batch sizes: of two columns, one nowhere
        # above the other, the smoothed ones are so as well.
        smooth = [rising(row) for row in rows.values()]
        columns = [rising(column) for column in zip(*smooth, strict=True)]
        return dict(zip(sizes, map(list, zip(*columns, strict=True)), strict=True))


def _row_at(rows: _Rows, batch_size: int) -> _Row:
    """Below the smallest batch size it stays: a line downwards would soon cost nothing."""
    if (row := rows.get(batch_size)) is not None:
        return row
    sizes = list(rows)
    if batch_size > sizes[-1] and len(sizes) > 1:
        share = (batch_size - sizes[-2]) / (sizes[-1] - sizes[-2])
        # Lines that noise has made steeper at shorter lengths would cross.
        return list(accumulate(_mix(rows[sizes[-2]], rows[sizes[-1]], share), max))
    low, high, share = between(sizes, batch_size)
    return _mix(rows[sizes[low]], rows[sizes[high]], share) if share else rows[sizes[low]]


def _extra_at(extras: _Rows, batch_size: int) -> _Row:
    """Beyond the batch sizes in proportion: each sequence's own context is read."""
    nearest = min(max(batch_size, min(extras)), max(extras))
    return [extra * batch_size / nearest for extra in _row_at(extras, nearest)]


def _mix(a: Sequence[float], b: Sequence[float], share: float) -> _Row:
    return [x + share * (y - x) for x, y in zip(a, b, strict=True)]
