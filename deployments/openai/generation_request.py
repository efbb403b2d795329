"""What both endpoints take: the common fields, and what they come to for the engine."""

from pydantic import Field

from deployments.json_values import show
from deployments.openai.fields import BadWords, LogitBias, Stop
from deployments.openai.output_format import (
    AskedGrammar,
    ResponseFormat,
    StructuredOutputs,
    asked_grammar,
)
from deployments.strict_model import StrictModel, Text
from engine.errors import RequestError
from engine.request import MAX_LOGPROBS, GrammarSpec, SamplingParams
from policy.table import MAX_DRAFT_LEN

MAX_CHOICES = 128
MAX_TOP_K = 2**31 - 1
"""More than any vocabulary holds: a larger top_k means the same, and fits no tensor."""
_ANY_ROOM = 2**31 - 1
"""More tokens than any context has: what a request may ask for before its prompt is known."""


class StreamOptions(StrictModel):
    include_usage: bool | None = None
    """One more chunk at the end, with the usage and no choices."""


class Speculation(StrictModel):
    max_draft_tokens: int | None = None
    """Longest draft for this request; null: whatever the policy's table says."""


class GenerationRequest(StrictModel):
    """Fields of either endpoint. `check` is to be called once they are validated one by one."""

    model: Text
    max_tokens: int | None = Field(default=None, description="New tokens at most, 1 or more.")
    min_tokens: int | None = Field(default=None, description="No end before so many; 0.")
    temperature: float | None = Field(default=None, description="0 (greedy) to 2; 1 if left out.")
    top_p: float | None = Field(default=None, description="Above 0, at most 1; 1 if left out.")
    top_k: int | None = Field(
        default=None, description="Likeliest tokens to choose from; 0 or -1: all."
    )
    min_p: float | None = Field(default=None, description="0 to 1, of the likeliest token's; 0.")
    presence_penalty: float | None = Field(default=None, description="-2 to 2; 0 if left out.")
    frequency_penalty: float | None = Field(default=None, description="-2 to 2; 0 if left out.")
    repetition_penalty: float | None = Field(default=None, description="Above 0; 1 if left out.")
    logit_bias: LogitBias = ()
    bad_words: BadWords = ()
    seed: int | None = Field(default=None, description="The same seed gives the same answer.")
    n: int | None = Field(default=None, description=f"Choices, 1 to {MAX_CHOICES}; 1.")
    stop: Stop = ()
    include_stop_str_in_output: bool | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = Field(default=None, description="true if left out.")
    prompt_logprobs: int | None = Field(default=None, description=f"0 to {MAX_LOGPROBS}.")
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: int | None = Field(default=None, description="Lower goes first; 0 if left out.")
    cache_salt: Text | None = Field(
        default=None, description="Computed tokens are shared among requests of one salt alone."
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    speculation: Speculation | None = None
    include_speculation_metrics: bool | None = Field(
        default=None, description="Adds metrics.speculative_decoding to the answer."
    )
    timeout: float | None = Field(
        default=None, description="Seconds after which the request is given up; above 0."
    )

    @property
    def num_choices(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def marks_drafts(self) -> bool:
        """Whether the answer tells which of its tokens were kept from a draft."""
        return False

    @property
    def num_top_logprobs(self) -> int | None:
        """Alternatives to list for each new token; None: no log-probabilities at all."""
        raise NotImplementedError

    @property
    def grammar(self) -> AskedGrammar | None:
        """Raises RequestError for fields that contradict each other."""
        return asked_grammar(self.response_format, self.structured_outputs)

    def sampling(
        self,
        room: int,
        *,
        bad_words: tuple[tuple[int, ...], ...] = (),
        grammar: GrammarSpec | None = None,
    ) -> SamplingParams:
        """With at most `room` new tokens, and what needs a tokenizer given as tokens.

        Raises RequestError for a value out of range.
        """
        draft_tokens = self.speculation.max_draft_tokens if self.speculation else None
        return SamplingParams(
            max_tokens=min(self._wanted_tokens(room), room),
            # Within the context's limit both promises end.
            min_tokens=min(self.min_tokens or 0, room),
            temperature=_or_default(self.temperature, 1.0),
            top_p=_or_default(self.top_p, 1.0),
            top_k=min(max(self.top_k or 0, 0), MAX_TOP_K),
            min_p=_or_default(self.min_p, 0.0),
            presence_penalty=_or_default(self.presence_penalty, 0.0),
            frequency_penalty=_or_default(self.frequency_penalty, 0.0),
            repetition_penalty=_or_default(self.repetition_penalty, 1.0),
            logit_bias=self.logit_bias,
            bad_words=bad_words,
            seed=self.seed,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            logprobs=self.num_top_logprobs,
            prompt_logprobs=self._num_prompt_logprobs(),
            grammar=grammar,
            max_draft_tokens=None if draft_tokens is None else min(draft_tokens, MAX_DRAFT_LEN),
        )

    def _wanted_tokens(self, room: int) -> int:
        raise NotImplementedError

    def _num_prompt_logprobs(self) -> int | None:
        return self.prompt_logprobs

    def check(self) -> None:
        """Raises RequestError."""
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options", "stream_options needs stream to be true")
        if self.include_speculation_metrics and self.stream and not self.include_usage:
            raise RequestError(
                "include_speculation_metrics",
                "include_speculation_metrics needs stream_options.include_usage in a stream: the "
                "chunk with the usage carries them; got true",
            )
        if self.timeout is not None and self.timeout <= 0:
            raise RequestError("timeout", f"timeout must be above 0, got {show(self.timeout)}")
        require_range("n", self.n, 1, MAX_CHOICES)
        require_range("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        if self.top_k is not None and self.top_k < -1:
            raise RequestError(
                "top_k", f"top_k must be -1 or 0 (all), or more, got {show(self.top_k)}"
            )
        draft_tokens = self.speculation.max_draft_tokens if self.speculation else None
        if draft_tokens is not None and draft_tokens < 0:
            raise RequestError(
                "speculation.max_draft_tokens",
                f"speculation.max_draft_tokens must be 0 or more, got {show(draft_tokens)}",
            )
        if self.grammar is not None and self.ignore_eos:
            raise RequestError(
                "ignore_eos",
                f"ignore_eos must be false with {self.grammar.field.partition('.')[0]}, "
                "which tells where the answer ends; got true",
            )
        self.sampling(_ANY_ROOM)


def _or_default(value: float | None, default: float) -> float:
    return default if value is None else value


def require_range(field: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        expected = f"between {low} and {high}" if low < high else str(low)
        raise RequestError(field, f"{field} must be {expected}, got {show(value)}")
