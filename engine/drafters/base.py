"""The drafter's interface, and the drafter that never drafts."""

from collections.abc import Sequence as ReadOnly
from typing import Protocol

from engine.plan import NO_DRAFT, Draft, SeqSlice


class Drafter(Protocol):
    """Guesses how sequences go on. A wrong guess costs time, never correctness."""

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        """At most `draft_len` tokens for each slice, in order; fewer or none is always allowed."""


class NoDrafter:
    """For an engine without speculation."""

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        return [NO_DRAFT] * len(slices)
