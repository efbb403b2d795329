"""A step as data: what the scheduler decided, what the drafter guessed, what the target said."""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

from engine.request import SamplingParams


@dataclass(frozen=True, slots=True)
class SeqSlice:
    """The part of one sequence that a step computes."""

    request_id: str
    tokens: ReadOnly[int]
    """All known tokens of the sequence; not to be changed by a reader."""
    start: int
    """Position of the first token to compute."""
    num_tokens: int
    """Known tokens to compute: tokens[start : start + num_tokens]."""
    block_ids: ReadOnly[int]
    draft_len: int
    """Draft tokens asked for; the drafter may return fewer."""
    draft_computed: int
    """Tokens whose KV the draft model holds."""
    samples: bool
    """Whether the slice reaches the last known token, so that the target yields new ones."""
    sampling: SamplingParams
    seed: int

    @property
    def end(self) -> int:
        """Position behind the last known token computed."""
        return self.start + self.num_tokens


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Slices that sample a draft come before those that prefill."""

    table_version: int
    num_decoding: int
    """Decoding sequences: the batch size that the table was asked for."""
    draft_len: int
    """The table's answer."""
    slices: tuple[SeqSlice, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed continuation of one slice."""

    token_ids: tuple[int, ...] = ()
    num_computed: int = 0
    """Tokens, drafted ones included, whose KV the draft model now holds."""


NO_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class StepResult:
    """The target's answer, one entry per slice."""

    new_tokens: tuple[tuple[int, ...], ...]
    """Accepted draft tokens and the target's own next one; empty where the slice doesn't sample."""
    target_seconds: float
