"""What goes into the engine and what comes out: Request, SamplingParams, TokenDelta."""

from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import RequestError

GREEDY_BELOW = 1e-5


class FinishReason(StrEnum):
    """Why a sequence ended, in OpenAI's words."""

    STOP = "stop"
    """An EOS or stop token, or (decided by the text layer) a stop string."""
    LENGTH = "length"
    """`max_tokens` or the context limit."""
    ABORT = "abort"
    """The caller went away or aborted the request."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens. Raises RequestError, naming the field, when a value is out of range."""

    max_tokens: int = 16
    """New tokens at most, >= 1."""
    temperature: float = 1.0
    """0 is greedy; at most 2."""
    top_p: float = 1.0
    """In (0, 1]: sample from the smallest set of tokens whose probability reaches it."""
    top_k: int = 0
    """Sample from the k likeliest tokens; 0 means all."""
    seed: int | None = None
    """Any integer in [-2**63, 2**63); None: the engine draws one."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the sequence, beside the model's own EOS tokens."""
    ignore_eos: bool = False
    """Go on past the model's EOS tokens (for benchmarks)."""
    max_draft_tokens: int | None = None
    """Longest draft for this request; None: whatever the table says. Never changes the output."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise RequestError(
                "max_tokens", f"max_tokens must be at least 1, got {self.max_tokens}"
            )
        if not 0.0 <= self.temperature <= 2.0:
            raise RequestError(
                "temperature", f"temperature must be between 0 and 2, got {self.temperature}"
            )
        if not 0.0 < self.top_p <= 1.0:
            raise RequestError("top_p", f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.top_k < 0:
            raise RequestError("top_k", f"top_k must be 0 (off) or more, got {self.top_k}")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise RequestError("seed", f"seed must fit in 64 bits, got {self.seed}")
        if self.max_draft_tokens is not None and self.max_draft_tokens < 0:
            raise RequestError(
                "max_draft_tokens",
                f"max_draft_tokens must be 0 or more, got {self.max_draft_tokens}",
            )

    @property
    def is_greedy(self) -> bool:
        """At temperature 0, and where a division by it would overflow: the limit is the same."""
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to continue. `request_id` must be unique among the requests in flight."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """What one step added to a request: zero or more tokens, and the reason if it ended."""

    request_id: str
    token_ids: tuple[int, ...]
    """New tokens in order, an ending EOS or stop token included."""
    finish_reason: FinishReason | None = None
    num_drafted: int = 0
    """Draft tokens verified in this step."""
    num_accepted: int = 0
    """Of them, those emitted."""
