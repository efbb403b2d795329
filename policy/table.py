"""The speculation table: largest batch size -> draft length, looked up at every step."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

UNBOUNDED_BATCH_SIZE = 2**31 - 1
"""Rung key that stands for every batch size (a rung of a fixed length)."""

MAX_DRAFT_LEN = 16
"""Longest draft that a table may ask for; the engine's own limit may be lower."""


class Lengths(NamedTuple):
    """Draft lengths in tokens, by who makes the draft."""

    modelled: int
    """Of a draft that a model makes, token by token."""
    looked_up: int
    """Of one that stands in the text itself, and so costs nothing to make."""

    @property
    def longest(self) -> int:
        return max(self)

    def __str__(self) -> str:
        if self.modelled == self.looked_up:
            return str(self.modelled)
        return f"{self.modelled} modelled, {self.looked_up} looked up"


@dataclass(frozen=True, slots=True)
class Share:
    """How drafts of one source are dealt out among the sequences."""

    lengths: tuple[int, ...]
    """For each rung: tokens of a sequence whose drafts fare as others do."""
    break_even: tuple[float, ...]
    """For each rung: how likely a draft token must be kept for it to pay. A sequence whose own
    drafts fared better or worse than others gets as many tokens as are likelier than that."""
    acceptance: float
    """How often a draft token is kept whose forerunners were, over all traffic: what is expected
    of a sequence that little is known of."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How a replica deals out draft tokens among its sequences, and looks for better times."""

    modelled: Share
    looked_up: Share
    probe_share: float = 0.01
    """Of the time, what may be lost on drafts that are longer than the table says, so that it is
    noticed when they begin to pay."""

    def lengths(self, rung: int) -> Lengths:
        return Lengths(self.modelled.lengths[rung], self.looked_up.lengths[rung])


@dataclass(frozen=True, slots=True)
class SpeculationTable:
    """Draft length by batch size, immutable; a new choice is a new table with a higher version.

    Batch size counts *decoding* sequences only. A batch size takes the rung with the next larger
    key, as in the paper (Su, Giannoula, Pekhimenko 2023, arXiv 2310.18813, section on the adaptive
    scheme). Above the last rung nothing is known, so nothing is drafted: length 0.

    >>> SpeculationTable(version=1, rungs=((2, 6), (8, 3))).draft_len(5)
    3
    >>> SpeculationTable(version=1, rungs=((2, 6), (8, 3))).draft_len(9)
    0
    """

    version: int
    rungs: tuple[tuple[int, int], ...]
    """(largest batch size, length in tokens of the longest draft), batch sizes strictly rising."""
    budget: Budget | None = None
    """None: every sequence gets the table's length, and where that is 0 nothing is drafted."""

    def __post_init__(self) -> None:
        if self.version < 0:
            raise ValueError(f"version must be >= 0, got {self.version}")
        previous = 0
        for batch_size, length in self.rungs:
            if batch_size <= previous:
                raise ValueError(
                    "batch sizes must be at least 1 and strictly rising, "
                    f"got {batch_size} after {previous}"
                )
            if not 0 <= length <= MAX_DRAFT_LEN:
                raise ValueError(
                    f"draft length for batch size {batch_size} must be between 0 and "
                    f"{MAX_DRAFT_LEN}, got {length}"
                )
            previous = batch_size
        if self.budget is not None:
            self._check(self.budget)

    def _check(self, budget: Budget) -> None:
        for name, share in (("modelled", budget.modelled), ("looked_up", budget.looked_up)):
            if not len(share.lengths) == len(share.break_even) == len(self.rungs):
                raise ValueError(
                    f"budget.{name} must have one entry for each of {len(self.rungs)} rungs, got "
                    f"{len(share.lengths)} lengths and {len(share.break_even)} of break_even"
                )
        for index, (largest, length) in enumerate(self.rungs):
            if budget.lengths(index).longest != length:
                raise ValueError(
                    f"draft length for batch size {largest} must be the longest of the budget's, "
                    f"{budget.lengths(index).longest}, got {length}"
                )

    def draft_len(self, batch_size: int) -> int:
        """Length in tokens of the longest draft for `batch_size` decoding sequences (0 above the
        last rung)."""
        rung = self.rung(batch_size)
        return 0 if rung is None else self.rungs[rung][1]

    def rung(self, batch_size: int) -> int | None:
        """Index of the rung of `batch_size` decoding sequences; None above the last."""
        for index, (largest, _) in enumerate(self.rungs):
            if batch_size <= largest:
                return index
        return None

    def lengths(self, batch_size: int) -> Lengths:
        """Draft lengths by source: alike where there is no budget."""
        return self.lengths_of(self.rung(batch_size))

    def lengths_of(self, rung: int | None) -> Lengths:
        """The same of a rung, or of what lies above the last (None)."""
        if rung is None:
            return Lengths(0, 0)
        if self.budget is None:
            return Lengths(self.rungs[rung][1], self.rungs[rung][1])
        return self.budget.lengths(rung)

    @property
    def max_draft_len(self) -> int:
        """Longest length of any rung, in tokens."""
        return max((length for _, length in self.rungs), default=0)

    def with_version(self, version: int) -> "SpeculationTable":
        """The same rungs under another version."""
        return SpeculationTable(version=version, rungs=self.rungs, budget=self.budget)


def fixed_rungs(draft_len: int) -> tuple[tuple[int, int], ...]:
    """Rungs that use one draft length at every batch size."""
    return ((UNBOUNDED_BATCH_SIZE, draft_len),) if draft_len else ()


def rungs_from(table: Mapping[int, int] | Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sorted rungs of a `{largest batch size: draft length}` mapping (or of its items)."""
    items = table.items() if isinstance(table, Mapping) else table
    return tuple(sorted((int(batch_size), int(length)) for batch_size, length in items))
