"""The shapes of OpenAI's answers, whole ones and stream chunks, for both endpoints."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from deployments.generation.choice import OpenAIFinishReason

JsonObject = dict[str, object]


def _is_none(value: object) -> bool:
    return value is None


class CompletionTokensDetails(BaseModel):
    accepted_prediction_tokens: int
    """Draft tokens that became part of the answer."""
    rejected_prediction_tokens: int


class PromptTokensDetails(BaseModel):
    cached_tokens: int
    """Of the prompt: those computed for an earlier request."""


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class SpeculativeDecoding(BaseModel):
    """How drafts fared, over all choices. Steps that drafted nothing are not counted."""

    mean_acceptance_length: float | None
    """Tokens that a step with a draft emitted, the target's own included; None without steps."""
    draft_acceptance_rate: float | None
    """Accepted of drafted tokens; None where nothing was drafted."""
    acceptance_histogram: dict[str, int]
    """Steps by the number of draft tokens accepted; numbers that never came are left out."""
    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int


class Metrics(BaseModel):
    speculative_decoding: SpeculativeDecoding


AbsentMetrics = Annotated[Metrics | None, Field(exclude_if=_is_none)]


@dataclass(frozen=True, slots=True)
class Totals:
    """What is told once of a whole answer."""

    usage: Usage
    metrics: Metrics | None = None
    """If they were asked for."""


class PromptTokenLogprob(BaseModel):
    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptTokenLogprob] | None]
"""vLLM's: for each token of the prompt, by token id, what was there and what was likeliest."""
AbsentPromptLogprobs = Annotated[PromptLogprobs | None, Field(exclude_if=_is_none)]


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    """None for a prompt's first token."""
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: OpenAIFinishReason | None = None
    prompt_logprobs: AbsentPromptLogprobs = None


class Completion(BaseModel):
    """Whole, or a chunk: OpenAI has one shape for both."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    metrics: AbsentMetrics = None


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]
    refusal: None = None


class DraftMark(BaseModel):
    """Where a token of the text comes from."""

    offset: int
    """Characters before it in the whole text."""
    drafted: bool
    """Whether it was kept from a draft; else the target's own."""
    rejected: int
    """Draft tokens that the target rejected at this place."""


AbsentDraftMarks = Annotated[list[DraftMark] | None, Field(exclude_if=_is_none)]


class FunctionCall(BaseModel):
    name: str
    arguments: str


class ToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None
    """None where there are only tool calls."""
    refusal: None = None
    tool_calls: list[ToolCall] | None = Field(default=None, exclude_if=_is_none)


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    draft_marks: AbsentDraftMarks = None
    finish_reason: OpenAIFinishReason


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    metrics: AbsentMetrics = None
    prompt_logprobs: AbsentPromptLogprobs = None


class FunctionCallDelta(BaseModel):
    name: str | None = Field(default=None, exclude_if=_is_none)
    arguments: str


class ToolCallDelta(BaseModel):
    index: int
    id: str | None = Field(default=None, exclude_if=_is_none)
    type: Literal["function"] | None = Field(default=None, exclude_if=_is_none)
    function: FunctionCallDelta


class ChatDelta(BaseModel):
    """Absent means unchanged."""

    role: Literal["assistant"] | None = Field(default=None, exclude_if=_is_none)
    content: str | None = Field(default=None, exclude_if=_is_none)
    tool_calls: list[ToolCallDelta] | None = Field(default=None, exclude_if=_is_none)


class ChatChunkChoice(BaseModel):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    draft_marks: AbsentDraftMarks = None
    finish_reason: OpenAIFinishReason | None = None


class ChatCompletionChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    metrics: AbsentMetrics = None
    prompt_logprobs: AbsentPromptLogprobs = None
