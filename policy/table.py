"""The speculation table: largest batch size -> draft length, looked up at every step."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

UNBOUNDED_BATCH_SIZE = 2**31 - 1
"""Rung key that stands for every batch size (a rung of a fixed length)."""

MAX_DRAFT_LEN = 16
"""Longest draft that a table may ask for; the engine's own limit may be lower."""


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
    """(largest batch size, draft length in tokens), batch sizes strictly rising."""

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

    def draft_len(self, batch_size: int) -> int:
        """Draft length in tokens for `batch_size` decoding sequences (0 above the last rung)."""
        for largest, length in self.rungs:
            if batch_size <= largest:
                return length
        return 0

    @property
    def max_draft_len(self) -> int:
        """Longest length of any rung, in tokens."""
        return max((length for _, length in self.rungs), default=0)

    def with_version(self, version: int) -> "SpeculationTable":
        """The same rungs under another version."""
        return SpeculationTable(version=version, rungs=self.rungs)


def fixed_rungs(draft_len: int) -> tuple[tuple[int, int], ...]:
    """Rungs that use one draft length at every batch size."""
    return ((UNBOUNDED_BATCH_SIZE, draft_len),) if draft_len else ()


def rungs_from(table: Mapping[int, int] | Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sorted rungs of a `{largest batch size: draft length}` mapping (or of its items)."""
    items = table.items() if isinstance(table, Mapping) else table
    return tuple(sorted((int(batch_size), int(length)) for batch_size, length in items))
