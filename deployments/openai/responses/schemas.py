"""Requests of the Responses API, validated field by field; `translation` reads the rest."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator

from deployments.json_values import show
from deployments.openai.generation_request import Speculation
from deployments.openai.neutral_fields import (
    EMPTY_LIST,
    FALSE,
    LABEL,
    ONLY_NULL,
    STREAM_OPTIONS_FIELDS,
    Neutral,
    without_neutral,
)
from deployments.strict_model import StrictModel, Text, valid_text
from deployments.validation import validated
from engine.errors import RequestError

_NO_REASONING = Neutral(
    accepts=lambda value: (
        isinstance(value, dict)
        and all(entry is None or (key, entry) == ("effort", "none") for key, entry in value.items())
    ),
    expected='{"effort": "none"}',
)
_NEUTRAL: Mapping[str, Neutral] = {
    "background": FALSE,
    "context_management": ONLY_NULL,
    "conversation": ONLY_NULL,
    "include": EMPTY_LIST,
    "max_tool_calls": ONLY_NULL,
    "moderation": ONLY_NULL,
    "previous_response_id": ONLY_NULL,
    "prompt": ONLY_NULL,
    "prompt_cache_key": LABEL,
    "prompt_cache_options": ONLY_NULL,
    "prompt_cache_retention": ONLY_NULL,
    "reasoning": _NO_REASONING,
    "safety_identifier": LABEL,
    "service_tier": Neutral(("auto", "default")),
    "store": FALSE,
    "top_logprobs": Neutral((0,)),
    "truncation": Neutral(("disabled",)),
    "user": LABEL,
}
_TEXT_NEUTRAL: Mapping[str, Neutral] = {"verbosity": Neutral(("medium",))}
_TOOL_NEUTRAL: Mapping[str, Neutral] = {
    "allowed_callers": ONLY_NULL,
    "defer_loading": FALSE,
    "output_schema": ONLY_NULL,
}
_OF_ITEMS: dict[str, Neutral] = {"id": LABEL, "status": LABEL}
"""What an answer's items carry when they are sent back."""
_ITEM_NEUTRAL: Mapping[str, Mapping[str, Neutral]] = {
    "message": _OF_ITEMS | {"phase": LABEL},
    "function_call": _OF_ITEMS
    | dict.fromkeys(("async", "async_", "caller", "namespace"), ONLY_NULL),
    "function_call_output": _OF_ITEMS | {"caller": ONLY_NULL},
}
_PART_NEUTRAL: Mapping[str, Neutral] = {"annotations": EMPTY_LIST, "logprobs": EMPTY_LIST}


def _input(value: object) -> str | list[Any]:
    if isinstance(value, str):
        return valid_text(value)
    if not isinstance(value, list) or not value:
        raise ValueError("must be a string or a list of at least one message or item")
    return value


def _content(value: object) -> str:
    if isinstance(value, str):
        return valid_text(value)
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of parts")
    return "".join(_part(part) for part in value)


def _part(value: object) -> str:
    if isinstance(value, Mapping):
        try:
            part = without_neutral(value, _PART_NEUTRAL)
        except RequestError as error:
            raise ValueError(f"has a part whose {error}") from None
        if set(part) == {"type", "text"} and part["type"] in ("input_text", "output_text"):
            return valid_text(part["text"])
    raise ValueError(
        'must have parts such as {"type": "input_text", "text": ...} or {"type": "output_text", '
        '"text": ...} alone'
    )


def _tool_choice(value: object) -> str | dict[str, Any] | None:
    match value:
        case None:
            return None
        case "none" | "auto" | "required":
            return str(value)
        case {"type": "function", "name": str(name), **rest} if not rest:
            return {"type": "function", "name": name}
    raise ValueError('must be "none", "auto", "required" or {"type": "function", "name": ...}')


Parts = Annotated[str, PlainValidator(_content, json_schema_input_type=str | list[dict[str, Any]])]


class MessageItem(StrictModel):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Parts


class CallItem(StrictModel):
    type: Literal["function_call"]
    call_id: Text
    name: Text
    arguments: Text
    """A JSON object as text."""


class CallOutputItem(StrictModel):
    type: Literal["function_call_output"]
    call_id: Text
    output: Parts


Item = MessageItem | CallItem | CallOutputItem
_ITEMS: Mapping[str, type[Item]] = {
    "message": MessageItem,
    "function_call": CallItem,
    "function_call_output": CallOutputItem,
}

Input = Annotated[str | list[Any], PlainValidator(_input, json_schema_input_type=str | list[Item])]


class FunctionTool(StrictModel):
    type: Literal["function"]
    name: Text
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextFormat(StrictModel):
    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    description: Text | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextConfig(StrictModel):
    format: TextFormat | None = None


class ResponsesRequest(StrictModel):
    """Body of POST /v1/responses."""

    model: Text
    input: Input
    instructions: Text | None = None
    max_output_tokens: int | None = Field(default=None, description="New tokens at most.")
    temperature: float | None = Field(default=None, description="0 (greedy) to 2; 1 if left out.")
    top_p: float | None = Field(default=None, description="Above 0, at most 1; 1 if left out.")
    text: TextConfig | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Annotated[
        str | dict[str, Any] | None,
        PlainValidator(_tool_choice, json_schema_input_type=str | dict[str, str] | None),
    ] = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = None
    stream: bool | None = None
    seed: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    priority: int | None = None
    speculation: Speculation | None = None
    include_speculation_metrics: bool | None = None
    timeout: float | None = None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Raises RequestError."""
        prepared = without_neutral(body, _NEUTRAL)
        options = prepared.pop("stream_options", None)
        if isinstance(options, Mapping):
            options = without_neutral(options, STREAM_OPTIONS_FIELDS, "stream_options.")
        if options:
            raise RequestError(
                "stream_options",
                f"stream_options must be left out: usage always comes; got {show(options)}",
            )
        if isinstance(text := prepared.get("text"), Mapping):
            prepared["text"] = without_neutral(text, _TEXT_NEUTRAL, "text.")
        if isinstance(tools := prepared.get("tools"), list):
            prepared["tools"] = [_prepared_tool(index, tool) for index, tool in enumerate(tools)]
        return validated(cls, prepared)

    def items(self) -> list[Item]:
        """The input; a string is one message. Raises RequestError."""
        if isinstance(self.input, str):
            return [MessageItem(role="user", content=self.input)]
        return [_item(f"input[{index}]", value) for index, value in enumerate(self.input)]


def _prepared_tool(index: int, tool: object) -> object:
    if not isinstance(tool, Mapping):
        return tool
    if tool.get("type", "function") != "function":
        raise RequestError(
            f"tools[{index}].type",
            f'tools[{index}].type must be "function": there are no built-in tools here; got '
            f"{show(tool['type'])}",
        )
    return without_neutral(tool, _TOOL_NEUTRAL, f"tools[{index}].")


def _item(where: str, value: object) -> Item:
    if not isinstance(value, Mapping):
        raise RequestError(where, f"{where} must be an object, got {show(value)}")
    kind = value.get("type", "message")
    if not isinstance(kind, str) or kind not in _ITEMS:
        expected = ", ".join(show(name) for name in _ITEMS)
        raise RequestError(
            f"{where}.type", f"{where}.type must be one of {expected}; got {show(kind)}"
        )
    prepared = without_neutral(value, _ITEM_NEUTRAL[kind], f"{where}.")
    try:
        return validated(_ITEMS[kind], prepared)
    except RequestError as error:
        raise RequestError(f"{where}.{error.field}", f"{where}.{error}") from None
