"""One request in flight: its tokens, and how far target and draft have computed them."""

from dataclasses import dataclass, field

from engine.draft_record import DraftRecord
from engine.grammar import GrammarCursor
from engine.request import FinishReason, Request


@dataclass(slots=True, eq=False)
class Sequence:
    """Written by the Scheduler alone.

    tokens:      [ prompt ............ | generated ... ]
    target KV:   [ num_computed ..............]          the rest is pending (1 when decoding)
    draft KV:    [ draft_computed .....]                 the drafter catches up when it next drafts
    blocks:      [ shared ....][ own .....................]  block_ids; empty while it waits
    """

    request: Request
    request_id: str = field(init=False)
    num_prompt: int = field(init=False)
    """How many of its tokens are the prompt."""
    seed: int
    max_len: int
    """Number of tokens, prompt included, at which the sequence ends with reason "length"."""
    tokens: list[int]
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end it."""
    grammar: GrammarCursor | None = None
    num_prompt_logprobs: int = 0
    """Log-probabilities of prompt tokens that have been told."""
    arrival: int = 0
    """How many requests came before it."""
    num_cached_tokens: int | None = None
    """Tokens found in the prefix cache when it was first admitted; None before."""
    came_at_s: float = 0.0
    """When it was queued, on the engine's clock."""
    queue_seconds: float = 0.0
    """From then until it was first admitted."""
    digests: list[bytes] = field(default_factory=list)
    """Of its full blocks, as far as they were needed."""
    block_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    draft_computed: int = 0
    modelled: DraftRecord = field(default_factory=DraftRecord)
    """How its own drafts fared that a model made."""
    looked_up: DraftRecord = field(default_factory=DraftRecord)
    """The same for those that stand in its text."""

    def __post_init__(self) -> None:
        self.request_id = self.request.request_id
        self.num_prompt = len(self.request.prompt_token_ids)

    @property
    def rank(self) -> tuple[int, int]:
        """Who goes first: the lowest."""
        return self.request.priority, self.arrival

    @property
    def output(self) -> list[int]:
        """The new tokens so far."""
        return self.tokens[self.num_prompt :]

    @property
    def num_pending(self) -> int:
        """Known tokens whose KV the target has not computed yet; at least 1."""
        return len(self.tokens) - self.num_computed

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether some of the prompt's log-probabilities are still to be told."""
        asked = self.request.sampling.prompt_logprobs is not None
        return asked and self.num_prompt_logprobs < self.num_prompt - 1

    @property
    def is_decoding(self) -> bool:
        """Whether only the newest token is pending: the next pass of the target yields a token."""
        return 0 < self.num_computed == len(self.tokens) - 1

    @property
    def is_running(self) -> bool:
        return bool(self.block_ids)

    @property
    def num_reusable(self) -> int:
        """Known tokens whose KV may come from the cache, because nobody needs their logits."""
        if self.wants_prompt_logprobs:
            return self.num_prompt_logprobs
        return len(self.tokens) - 1

    def extend(self, new_tokens: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Add new tokens as far as the end, wherever that is: those added, and why it ends."""
        tokens = self.tokens
        if (
            self.grammar is None
            and len(tokens) + len(new_tokens) < self.max_len
            and self.stop_ids.isdisjoint(new_tokens)
        ):
            tokens.extend(new_tokens)  # most often it is plain that none of them ends it
            return new_tokens, None
        for index, token in enumerate(new_tokens):
            tokens.append(token)
            reason = self._end(token)
            if reason is not None:
                return new_tokens[: index + 1], reason
        return new_tokens, None

    def _end(self, token: int) -> FinishReason | None:
        """Why the sequence ends with `token`, its last; None if it goes on."""
        if token in self.stop_ids:
            return FinishReason.STOP
        if self.grammar is not None and self.grammar.has_ended(self.output):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.tokens) >= self.max_len else None

    def note_draft(self, num_drafted: int, num_kept: int, *, looked_up: bool) -> None:
        """A round in which a draft was allowed."""
        own, other = self.modelled, self.looked_up
        if looked_up:
            own, other = other, own
        own.note(num_drafted, num_kept)
        other.note(0, 0)

    def useful_draft(self, draft_len: int) -> int:
        """How much of it the request allows and can still be emitted, the bonus token included."""
        cap = self.request.sampling.max_draft_tokens
        if cap is not None and cap < draft_len:
            draft_len = cap
        useful = self.max_len - len(self.tokens) - 1
        return draft_len if draft_len < useful else useful
