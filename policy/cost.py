"""What a round costs: seconds by sequences, draft length and context, as calibrated, and as
corrected by what traffic shows."""

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any

from policy.lines import Line, between
from policy.quoting import shown
from policy.surface import Point, Surface

_LEAST_SECONDS = 1e-9
_MOST = 2**31 - 1
"""Of sequences, tokens or seconds: more is a damaged file, and arithmetic that overflows."""


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
                raise ValueError(
                    f"{name} must be a whole number from {least} on, got {shown(value)}"
                )
            if value > _MOST:
                raise ValueError(f"{name} must be at most {_MOST}, got {shown(value)}")
        for name, positive in (("target_seconds", True), ("draft_seconds", False)):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value <= _MOST
                or (positive and value == 0)
            ):
                raise ValueError(
                    f"{name} must be a {'positive' if positive else 'finite'} number of seconds, "
                    f"got {shown(value)}"
                )


@dataclass(frozen=True, slots=True)
class Calibration:
    """All points measured. At each (batch size, context) there is length 0 and another one: with
    none, drafts there would seem to be free. Raises ValueError otherwise."""

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
        for batch_size, context in sorted(rows - {(b, x) for b, s, x in places if s}):
            raise ValueError(
                f"cells hold no draft_len above 0 at batch_size {batch_size}, context {context}"
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


class RoundCost:
    """Seconds of a round at one batch size and context."""

    __slots__ = ("_draft", "batch_size", "target")

    def __init__(self, batch_size: int, target: Line, draft: Line) -> None:
        self.batch_size = batch_size
        self.target = target
        """Of a target pass, by draft tokens per sequence, on average over the sequences."""
        self._draft = draft

    def draft(self, draft_len: float) -> float:
        """Of drafting, by tokens for each sequence."""
        return max(0.0, self._draft(draft_len)) if draft_len else 0.0


class CostModel:
    """Seconds at any batch size, number of draft tokens and context. Immutable.

    Between measured points it is linear, and smooth (`Surface`); beyond the largest batch size and
    length it goes on as it was, below the smallest batch size and beyond the contexts it stays.
    """

    def __init__(
        self, calibration: Calibration, corrections: Mapping[int, Correction] | None = None
    ) -> None:
        self.calibration = calibration
        self._corrections = sorted((corrections or {}).items())
        self._log_sizes = [math.log(size) for size, _ in self._corrections]
        cells = calibration.cells
        self._target = Surface(
            Point(c.batch_size, c.draft_len, c.context, c.target_seconds) for c in cells
        )
        self._draft = Surface(
            Point(c.batch_size, c.draft_len, c.context, c.draft_seconds) for c in cells
        )

    def with_corrections(self, corrections: Mapping[int, Correction]) -> "CostModel":
        """The same calibration, corrected otherwise; its surfaces are not made again."""
        model = copy(self)
        model._corrections = sorted(corrections.items())
        model._log_sizes = [math.log(size) for size, _ in model._corrections]
        return model

    def at(self, batch_size: int, context: float) -> RoundCost:
        """What rounds cost at one batch size and context: to be asked once for many lengths."""
        fix = self.correction(batch_size)
        row = self._target.at(batch_size, context)
        plain = row[0]
        target = [
            max(_LEAST_SECONDS, fix.scale * (plain + fix.slope * (whole - plain))) for whole in row
        ]
        draft = [fix.draft_scale * seconds for seconds in self._draft.at(batch_size, context)]
        lengths = self._target.lengths
        return RoundCost(batch_size, Line(lengths, target), Line(lengths, draft))

    def target_seconds(self, batch_size: int, num_drafted: float, context: float) -> float:
        """Of a target pass over `batch_size` sequences and `num_drafted` draft tokens in all."""
        return self.at(batch_size, context).target(num_drafted / batch_size)

    def draft_seconds(self, batch_size: int, draft_len: float, context: float) -> float:
        """Of drafting `draft_len` tokens for each of `batch_size` sequences."""
        return self.at(batch_size, context).draft(draft_len)

    def correction(self, batch_size: int) -> Correction:
        """Interpolated over the logarithm of the batch size."""
        if not self._corrections:
            return _NONE
        low, high, share = between(self._log_sizes, math.log(batch_size))
        a, b = self._corrections[low][1], self._corrections[high][1]
        return Correction(
            a.scale + share * (b.scale - a.scale),
            a.slope + share * (b.slope - a.slope),
            a.draft_scale + share * (b.draft_scale - a.draft_scale),
        )


_NONE = Correction()
