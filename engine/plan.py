"""A step as data: what the scheduler decided, what the drafter guessed, what the target said."""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass
from typing import NamedTuple

from engine.grammar import GrammarCursor
from engine.request import SamplingParams, TokenLogprobs


class SeqSlice(NamedTuple):
    """The part of one sequence that a step computes.

    One is made for every sequence at every step, and a tuple in a quarter of a frozen dataclass's
    time.
    """

    request_id: str
    tokens: ReadOnly[int]
    """All known tokens of the sequence; not to be changed by a reader."""
    num_prompt: int
    """How many of them are the prompt."""
    start: int
    """Position of the first token to compute."""
    num_tokens: int
    """Known tokens to compute: tokens[start : start + num_tokens]."""
    block_ids: ReadOnly[int]
    draft_len: int
    """Draft tokens asked for, if a model makes them; the drafter may return fewer."""
    lookup_len: int
    """Draft tokens asked for, if they are looked up in the text."""
    draft_computed: int
    """Tokens whose KV the draft model holds."""
    samples: bool
    """Whether the slice reaches the last known token, so that the target yields new ones."""
    logits_from: int
    """First position whose logits are wanted, `end` for none: those of the last known token where
    the slice samples, and for prompt logprobs those of the prompt's tokens before it."""
    sampling: SamplingParams
    seed: int
    stop_ids: frozenset[int]
    """Tokens that end the sequence."""
    grammar: GrammarCursor | None

    @property
    def end(self) -> int:
        """Position behind the last known token computed."""
        return self.start + self.num_tokens

    @property
    def num_prompt_logprobs(self) -> int:
        """How many tokens of the prompt the slice's logits tell the log-probability of."""
        return self.end - self.logits_from - self.samples

    def output(self) -> ReadOnly[int]:
        """The new tokens so far, for a slice that samples."""
        return self.tokens[self.num_prompt : self.end]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Slices that sample a draft come before those that prefill."""

    table_version: int
    num_decoding: int
    """Decoding sequences: the batch size that the table was asked for."""
    draft_len: int
    """The table's answer: of the longest draft."""
    slices: tuple[SeqSlice, ...]
    probed: int | None = None
    """The slice that drafts more than the table says, to see what comes of it."""

    @property
    def asks_for_drafts(self) -> bool:
        """Whether any slice may draft."""
        return self.draft_len > 0 or self.probed is not None

    @property
    def all_decode(self) -> bool:
        """Whether no slice computes a prompt."""
        return len(self.slices) == self.num_decoding


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed continuation of one slice."""

    token_ids: tuple[int, ...] = ()
    num_computed: int = 0
    """Tokens, drafted ones included, whose KV the draft model now holds."""
    looked_up: bool = False
    """Whether it stands in the text itself, so that it took next to no time."""
    foreseen: tuple[int, ...] = ()
    """How a longer draft would have gone on; of those looked up."""


NO_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The target's answer to one slice."""

    new_tokens: tuple[int, ...] = ()
    """Accepted draft tokens and the target's own next one; empty where the slice doesn't sample."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each new token, if the request asked for them."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    error: str | None = None
    """Why the sequence cannot go on; there are no new tokens then."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The target's answer, one entry per slice."""

    slices: tuple[SliceResult, ...]
    target_seconds: float
    """The target's forward."""
    verify_seconds: float
    """Choosing tokens and comparing drafts with them."""
