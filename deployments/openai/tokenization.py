"""POST /tokenize and /detokenize in vLLM's shapes: requests, validated, and answers."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, PlainValidator

from deployments.openai.neutral_fields import MESSAGE_FIELDS, without_neutral
from deployments.openai.schemas import Message
from deployments.strict_model import StrictModel, Text
from deployments.tools.messages import check_messages
from deployments.validation import validated
from engine.errors import RequestError


def _token_ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(
        isinstance(token, int) and not isinstance(token, bool) for token in value
    ):
        raise ValueError("must be a list of token ids")
    return tuple(value)


class TokenizeRequest(StrictModel):
    """A prompt, or messages."""

    model: Text | None = None
    prompt: Text | None = None
    add_special_tokens: bool | None = None
    """Of a prompt: those that the model wants around a text; true if left out."""
    messages: list[Message] | None = None
    add_generation_prompt: bool | None = None
    """Of messages: the answer's beginning follows them; true if left out."""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Raises RequestError."""
        if isinstance(messages := body.get("messages"), list):
            body = {**body, "messages": _prepared(messages)}
        request = validated(cls, body)
        if (request.prompt is None) == (request.messages is None):
            raise RequestError("prompt", "exactly one of prompt and messages is required")
        other = "add_generation_prompt" if request.messages is None else "add_special_tokens"
        if getattr(request, other) is not None:
            needed = "messages" if request.messages is None else "a prompt"
            raise RequestError(other, f"{other} is for {needed} only")
        if request.messages is not None:
            if not request.messages:
                raise RequestError("messages", "messages must not be empty, got []")
            check_messages(request.messages)
        return request

    @property
    def text(self) -> str:
        """Of the prompt."""
        assert self.prompt is not None
        return self.prompt


class DetokenizeRequest(StrictModel):
    model: Text | None = None
    tokens: Annotated[tuple[int, ...], PlainValidator(_token_ids, json_schema_input_type=list[int])]

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Raises RequestError."""
        return validated(cls, body)


class TokenizeReply(BaseModel):
    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizeReply(BaseModel):
    prompt: str


def _prepared(messages: Sequence[object]) -> list[object]:
    return [
        without_neutral(message, MESSAGE_FIELDS, f"messages[{index}].")
        if isinstance(message, Mapping)
        else message
        for index, message in enumerate(messages)
    ]
