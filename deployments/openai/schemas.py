"""Requests of the OpenAI API, validated: every field is honoured, or refused by name.

`CompletionRequest.parse` and `ChatRequest.parse` take a decoded JSON object and raise RequestError
naming field and value. Ranges of the sampling fields are SamplingParams' own.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from deployments.json_values import show
from deployments.openai.neutral_fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    MESSAGE_FIELDS,
    STREAM_OPTIONS_FIELDS,
    without_neutral,
)
from deployments.validation import validated
from engine.errors import RequestError
from engine.request import SamplingParams
from policy.table import MAX_DRAFT_LEN

MAX_STOP_STRINGS = 4
MAX_TOP_K = 2**31 - 1
"""More than any vocabulary holds: a larger top_k means the same, and fits no tensor."""
DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for /v1/completions."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode (it holds half of a surrogate pair)") from None
    return value


def _prompt(value: object) -> str | tuple[int, ...]:
    if isinstance(value, list) and value and all(isinstance(part, str | list) for part in value):
        if len(value) > 1:
            raise ValueError("must be one prompt (several in a request are not supported yet)")
        value = value[0]
    if isinstance(value, list):
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in value):
            raise ValueError("must be a string or a list of token ids")
        value = tuple(value)
    else:
        value = _text(value)
    if not value:
        raise ValueError("must not be empty")
    return value


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("must be a string or a list of strings")
    if len(texts) > MAX_STOP_STRINGS:
        raise ValueError(f"must have at most {MAX_STOP_STRINGS} strings")
    if "" in texts:
        raise ValueError("must not hold an empty string")
    return tuple(_text(text) for text in texts)


def _content(value: object) -> str:
    if not isinstance(value, list):
        return _text(value)
    texts = []
    for part in value:
        if not isinstance(part, dict) or set(part) != {"type", "text"} or part["type"] != "text":
            raise ValueError('must be a string or a list of {"type": "text", "text": ...} parts')
        texts.append(_text(part["text"]))
    return "".join(texts)


Text = Annotated[str, PlainValidator(_text, json_schema_input_type=str)]
Prompt = Annotated[
    str | tuple[int, ...],
    PlainValidator(_prompt, json_schema_input_type=str | list[int] | list[str] | list[list[int]]),
]
Stop = Annotated[
    tuple[str, ...], PlainValidator(_stop, json_schema_input_type=str | list[str] | None)
]
Content = Annotated[
    str, PlainValidator(_content, json_schema_input_type=str | list[dict[str, str]])
]


class _Strict(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


class StreamOptions(_Strict):
    include_usage: bool | None = None
    """One more chunk at the end, with the usage and no choices."""


class Speculation(_Strict):
    max_draft_tokens: int | None = None
    """Longest draft for this request; null: whatever the policy's table says."""


class Message(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Content

    def for_template(self) -> dict[str, str]:
        """As chat templates know it; they have no developers."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": self.content}


class _GenerationRequest(_Strict):
    model: Text
    max_tokens: int | None = Field(default=None, description="New tokens at most, 1 or more.")
    temperature: float | None = Field(default=None, description="0 (greedy) to 2; 1 if left out.")
    top_p: float | None = Field(default=None, description="Above 0, at most 1; 1 if left out.")
    top_k: int | None = Field(default=None, description="Likeliest tokens to choose from; 0: all.")
    seed: int | None = Field(default=None, description="The same seed gives the same answer.")
    stop: Stop = ()
    stop_token_ids: list[int] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    speculation: Speculation | None = None

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def _sampling(self, max_tokens: int) -> SamplingParams:
        """Raises RequestError for a value out of range."""
        draft_tokens = self.speculation.max_draft_tokens if self.speculation else None
        if draft_tokens is not None and draft_tokens < 0:
            raise RequestError(
                "speculation.max_draft_tokens",
                f"speculation.max_draft_tokens must be 0 or more, got {show(draft_tokens)}",
            )
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=min(self.top_k or 0, MAX_TOP_K),
            seed=self.seed,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            max_draft_tokens=None if draft_tokens is None else min(draft_tokens, MAX_DRAFT_LEN),
        )

    def _check_streaming(self) -> None:
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options", "stream_options needs stream to be true")


class CompletionRequest(_GenerationRequest):
    """Body of POST /v1/completions."""

    prompt: Prompt

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Raises RequestError."""
        request = validated(cls, _prepared(body, COMPLETION_FIELDS))
        request._check_streaming()
        request.sampling(room=1)
        return request

    def sampling(self, room: int) -> SamplingParams:
        """With at most `room` new tokens."""
        wanted = DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        return self._sampling(min(wanted, room))


class ChatRequest(_GenerationRequest):
    """Body of POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = Field(default=None, description="max_tokens, newer name.")

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Raises RequestError."""
        prepared = _prepared(body, CHAT_FIELDS)
        if isinstance(messages := prepared.get("messages"), list):
            prepared["messages"] = [
                without_neutral(message, MESSAGE_FIELDS, f"messages[{index}].")
                if isinstance(message, Mapping)
                else message
                for index, message in enumerate(messages)
            ]
        request = validated(cls, prepared)
        if not request.messages:
            raise RequestError("messages", "messages must not be empty, got []")
        if None not in (request.max_tokens, request.max_completion_tokens) and (
            request.max_tokens != request.max_completion_tokens
        ):
            raise RequestError(
                "max_tokens",
                "max_tokens and max_completion_tokens mean the same and must not differ, got "
                f"{show(request.max_tokens)} and {show(request.max_completion_tokens)}",
            )
        if request.max_completion_tokens is not None and request.max_completion_tokens < 1:
            raise RequestError(
                "max_completion_tokens",
                "max_completion_tokens must be at least 1, got "
                f"{show(request.max_completion_tokens)}",
            )
        request._check_streaming()
        request.sampling(room=1)
        return request

    def sampling(self, room: int) -> SamplingParams:
        """With at most `room` new tokens, which is also what an open request gets."""
        wanted = self.max_completion_tokens if self.max_tokens is None else self.max_tokens
        return self._sampling(room if wanted is None else min(wanted, room))


def _prepared(body: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    prepared = without_neutral(body, fields)
    if isinstance(options := prepared.get("stream_options"), Mapping):
        prepared["stream_options"] = without_neutral(
            options, STREAM_OPTIONS_FIELDS, "stream_options."
        )
    return prepared
