"""What goes into the engine and what comes out: Request, SamplingParams, TokenDelta."""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, NamedTuple

from engine.errors import RequestError

GREEDY_BELOW = 1e-5
MAX_LOGPROBS = 20
"""Alternatives listed for a token, at most: OpenAI's and vLLM's limit."""
MAX_BIASES = 1024
MAX_BAD_WORDS = 1024
"""Each costs time at every place, for all requests of a step: more would hold the others up."""


class FinishReason(StrEnum):
    """Why a sequence ended, in OpenAI's words."""

    STOP = "stop"
    """An EOS or stop token, a finished grammar, or (decided by the text layer) a stop string."""
    LENGTH = "length"
    """`max_tokens` or the context limit."""
    ABORT = "abort"
    """The caller went away or aborted the request."""
    ERROR = "error"
    """This request alone failed; the delta's `error` says why."""


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """What an answer must conform to. Two equal specs share one compiled grammar."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    source: str = ""
    """The schema as JSON, the pattern, a JSON list of strings, or the grammar in EBNF; nothing for
    json_object."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens. Raises RequestError, naming the field, when a value is out of range.

    The token at a position is chosen from the target's logits there, changed in this order:
    penalties, logit_bias, what must not come (min_tokens, bad words, grammar), temperature, min_p,
    top_k, top_p. At each position the tokens before it count, those of a draft included as far as
    they are kept: no parameter sees where a draft began or ended.
    """

    max_tokens: int = 16
    """New tokens at most, >= 1."""
    min_tokens: int = 0
    """No EOS or stop token before so many new tokens; at most `max_tokens`."""
    temperature: float = 1.0
    """0 is greedy; at most 2."""
    top_p: float = 1.0
    """In (0, 1]: sample from the smallest set of tokens whose probability reaches it."""
    top_k: int = 0
    """Sample from the k likeliest tokens; 0 means all."""
    min_p: float = 0.0
    """In [0, 1]: leave out tokens less likely than this times the likeliest one."""
    presence_penalty: float = 0.0
    """In [-2, 2]: taken from the logit of each token that stands in the output."""
    frequency_penalty: float = 0.0
    """In [-2, 2]: the same, once for each time it stands there."""
    repetition_penalty: float = 1.0
    """Above 0: positive logits of tokens in prompt or output are divided by it, negative ones
    multiplied (Keskar et al. 2019, "CTRL")."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token, bias in [-100, 100]) pairs, added to the logits; a token's last one counts."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that the output must not contain."""
    seed: int | None = None
    """Any integer in [-2**63, 2**63); None: the engine draws one."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the sequence, beside the model's own EOS tokens."""
    ignore_eos: bool = False
    """Go on past the model's EOS tokens (for benchmarks)."""
    logprobs: int | None = None
    """Report the log-probability of each new token and of so many likeliest ones, 0 to 20, before
    temperature, penalties and masks; None: none at all."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens, but the first."""
    grammar: GrammarSpec | None = None
    max_draft_tokens: int | None = None
    """Longest draft for this request; None: whatever the table says. Never changes the output."""

    def __post_init__(self) -> None:
        _require("max_tokens", self.max_tokens, self.max_tokens >= 1, "at least 1")
        _require(
            "min_tokens",
            self.min_tokens,
            0 <= self.min_tokens <= self.max_tokens,
            f"between 0 and max_tokens ({self.max_tokens})",
        )
        _require_between("temperature", self.temperature, 0, 2)
        _require("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0 and at most 1")
        _require("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _require_between("min_p", self.min_p, 0, 1)
        _require_between("presence_penalty", self.presence_penalty, -2, 2)
        _require_between("frequency_penalty", self.frequency_penalty, -2, 2)
        _require(
            "repetition_penalty",
            self.repetition_penalty,
            0.0 < self.repetition_penalty < math.inf,
            "above 0 and finite",
        )
        _require_at_most("logit_bias", self.logit_bias, MAX_BIASES, "tokens")
        for token, bias in self.logit_bias:
            _require_between(f"logit_bias[{token}]", bias, -100, 100, field_name="logit_bias")
        _require_at_most("bad_words", self.bad_words, MAX_BAD_WORDS, "token sequences")
        _require("bad_words", (), all(map(len, self.bad_words)), "sequences of at least one token")
        if self.seed is not None:
            _require("seed", self.seed, -(2**63) <= self.seed < 2**63, "from -2^63 to 2^63 - 1")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                _require_between(name, value, 0, MAX_LOGPROBS)
        if self.max_draft_tokens is not None:
            _require(
                "max_draft_tokens", self.max_draft_tokens, self.max_draft_tokens >= 0, "0 or more"
            )
        if self.grammar is not None:
            # A finished grammar allows nothing but the end.
            _require("ignore_eos", self.ignore_eos, not self.ignore_eos, "false with a grammar")

    @property
    def is_greedy(self) -> bool:
        """At temperature 0, and where a division by it would overflow: the limit is the same."""
        return self.temperature < GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )


def _require_at_most(name: str, values: tuple[object, ...], most: int, what: str) -> None:
    if len(values) > most:
        raise RequestError(name, f"{name} must have at most {most} {what}, got {len(values)}")


def _require_between(
    name: str, value: float, low: float, high: float, *, field_name: str | None = None
) -> None:
    # NaN is in no range.
    _require(name, value, low <= value <= high, f"between {low} and {high}", field_name=field_name)


def _require(
    name: str, value: object, holds: bool, expected: str, *, field_name: str | None = None
) -> None:
    if not holds:
        raise RequestError(field_name or name, f"{name} must be {expected}, got {value}")


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to continue. `request_id` must be unique among the requests in flight."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    """Lower goes first, as in vLLM; among equals, whoever came first. Never changes the output."""
    tenant: str = ""
    """Whose it is: among equal priorities tenants get equal shares. Never changes the output."""
    generated_token_ids: tuple[int, ...] = ()
    """The beginning of its output, where another engine had begun it: the rest is what that one
    would have made of it, given the same seed. As after a preemption, they are computed again, not
    told again, and count wherever the output counts (`max_tokens`, penalties, the grammar)."""
    cache_salt: str = ""
    """Computed tokens are shared among requests of one salt alone. Never changes the output."""

    def continued(self, token_ids: tuple[int, ...]) -> "Request":
        """The rest of it, once these tokens more were told. The prompt's log-probabilities were
        told before the first of them."""
        if not token_ids:
            return self
        sampling = self.sampling
        if sampling.prompt_logprobs is not None:
            sampling = replace(sampling, prompt_logprobs=None)
        known = (*self.generated_token_ids, *token_ids)
        return replace(self, sampling=sampling, generated_token_ids=known)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What the target thought of one token, before any sampling parameter."""

    token_id: int
    logprob: float
    rank: int
    """1 for the likeliest token."""
    top: tuple[tuple[int, float], ...]
    """(token, logprob) of the likeliest ones, as many as were asked for, likeliest first."""


class TokenDelta(NamedTuple):
    """What one step added to a request: zero or more tokens, and the reason if it ended.

    A tuple for the same reason as `SeqSlice`: there are as many.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    """New tokens in order, an ending EOS or stop token included."""
    finish_reason: FinishReason | None = None
    num_drafted: int = 0
    """Draft tokens verified in this step."""
    num_accepted: int = 0
    """Of them, those emitted."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each new token, if the request asked for them."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """The next ones of the prompt's, in order; the prompt's first token has none."""
    num_cached_tokens: int = 0
    """Prompt tokens that another request had computed; told with the first new token."""
    error: str | None = None
    """Why the request failed, with finish reason "error"."""
    ends_with_stop_token: bool = False
    """Whether the last token is an EOS or stop token, which is no part of the text."""
    queue_seconds: float = 0.0
    """How long the request waited to be admitted; told with the first new token."""
