"""Answers in OpenAI's shapes: whole ones and stream chunks, for both endpoints."""

from typing import Literal, Protocol

from pydantic import BaseModel

OpenAIFinishReason = Literal["stop", "length"]


class CompletionTokensDetails(BaseModel):
    accepted_prediction_tokens: int
    """Draft tokens that became part of the answer."""
    rejected_prediction_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails


class CompletionChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: None = None
    finish_reason: OpenAIFinishReason | None


class Completion(BaseModel):
    """Whole, or a chunk: OpenAI has one shape for both."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int = 0
    message: AssistantMessage
    logprobs: None = None
    finish_reason: OpenAIFinishReason


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(BaseModel):
    index: int = 0
    delta: ChatDelta
    logprobs: None = None
    finish_reason: OpenAIFinishReason | None = None


class ChatCompletionChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None


JsonObject = dict[str, object]


class ReplyFormat(Protocol):
    """How one request's answer is written."""

    def opening(self) -> list[JsonObject]:
        """Chunks before the first text."""

    def chunks(self, text: str, finish_reason: OpenAIFinishReason | None) -> list[JsonObject]:
        """Chunks for new text, and for the end where there is a reason."""

    def usage_chunk(self, usage: Usage) -> JsonObject:
        """The chunk without choices that `include_usage` asks for."""

    def whole(self, text: str, finish_reason: OpenAIFinishReason, usage: Usage) -> JsonObject:
        """The answer that is not streamed."""


class CompletionFormat:
    """Answers of /v1/completions."""

    def __init__(self, request_id: str, created_unix_s: int, model: str) -> None:
        self._id = f"cmpl-{request_id}"
        self._created = created_unix_s
        self._model = model

    def opening(self) -> list[JsonObject]:
        return []

    def chunks(self, text: str, finish_reason: OpenAIFinishReason | None) -> list[JsonObject]:
        return [self._completion([CompletionChoice(text=text, finish_reason=finish_reason)])]

    def usage_chunk(self, usage: Usage) -> JsonObject:
        return self._completion([], usage)

    def whole(self, text: str, finish_reason: OpenAIFinishReason, usage: Usage) -> JsonObject:
        return self._completion([CompletionChoice(text=text, finish_reason=finish_reason)], usage)

    def _completion(
        self, choices: list[CompletionChoice], usage: Usage | None = None
    ) -> JsonObject:
        return Completion(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        ).model_dump()


class ChatFormat:
    """Answers of /v1/chat/completions."""

    def __init__(self, request_id: str, created_unix_s: int, model: str) -> None:
        self._id = f"chatcmpl-{request_id}"
        self._created = created_unix_s
        self._model = model

    def opening(self) -> list[JsonObject]:
        return [self._chunk(ChatDelta(role="assistant", content=""))]

    def chunks(self, text: str, finish_reason: OpenAIFinishReason | None) -> list[JsonObject]:
        made = [self._chunk(ChatDelta(content=text))] if text else []
        if finish_reason is not None:
            made.append(self._chunk(ChatDelta(), finish_reason))
        return made

    def usage_chunk(self, usage: Usage) -> JsonObject:
        return self._dump([], usage)

    def whole(self, text: str, finish_reason: OpenAIFinishReason, usage: Usage) -> JsonObject:
        choice = ChatChoice(message=AssistantMessage(content=text), finish_reason=finish_reason)
        return ChatCompletion(
            id=self._id, created=self._created, model=self._model, choices=[choice], usage=usage
        ).model_dump()

    def _chunk(
        self, delta: ChatDelta, finish_reason: OpenAIFinishReason | None = None
    ) -> JsonObject:
        return self._dump([ChatChunkChoice(delta=delta, finish_reason=finish_reason)])

    def _dump(self, choices: list[ChatChunkChoice], usage: Usage | None = None) -> JsonObject:
        dumped = ChatCompletionChunk(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        ).model_dump()
        for choice in dumped["choices"]:
            # In a delta, absent means unchanged.
            choice["delta"] = {k: v for k, v in choice["delta"].items() if v is not None}
        return dumped
