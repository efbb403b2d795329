"""The OpenAI API's tool fields, validated: tools, tool_choice, and what messages say of calls.

Errors carry paths such as `tools[0].function.name` when the models are validated as part of a
request, by `deployments.validation.validated`. What several fields must fulfil together is checked
in `offer` (tools and choice) and `messages` (a conversation).
"""

import re
from typing import Annotated, Any, Literal

from pydantic import PlainValidator

from deployments.json_values import MalformedBody, parse_object
from deployments.strict_model import StrictModel, Text
from deployments.tools.plain_json import check_plain_json

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOL_CHOICES = ("none", "auto", "required")


def _function_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("must be 1 to 64 ASCII letters, digits, _ or -")
    return value


def _parameters(value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON schema, as an object")
    if value.get("type", "object") != "object":
        raise ValueError('must be a JSON schema of type "object"')
    check_plain_json(value)
    return value


def _arguments(value: object) -> dict[str, Any]:
    if not isinstance(value, str):
        raise ValueError("must be a string (a JSON object as text)")
    if not value.strip():  # what some clients send for a call without arguments
        return {}
    try:
        arguments = parse_object(value.encode())
    except (MalformedBody, UnicodeEncodeError):
        raise ValueError("must be a JSON object as text") from None
    check_plain_json(arguments)
    return arguments


FunctionName = Annotated[str, PlainValidator(_function_name, json_schema_input_type=str)]
Parameters = Annotated[
    dict[str, Any] | None,
    PlainValidator(_parameters, json_schema_input_type=dict[str, Any] | None),
]
Arguments = Annotated[dict[str, Any], PlainValidator(_arguments, json_schema_input_type=str)]


class ToolFunction(StrictModel):
    name: FunctionName
    description: Text | None = None
    parameters: Parameters = None
    """JSON schema of the arguments; left out: the function takes none."""
    strict: bool | None = None
    """Whether arguments must conform to `parameters`; `offer` says when that can be promised."""


class Tool(StrictModel):
    type: Literal["function"]
    function: ToolFunction

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        if self.function.parameters is None:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        return {"type": "object"} | self.function.parameters

    def for_template(self) -> dict[str, Any]:
        """As chat templates know it.

        They join texts and walk through properties without asking whether there are any, so both
        are always there.
        """
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.function.description or "",
                "parameters": {"type": "object", "properties": {}}
                | (self.function.parameters or {}),
            },
        }


class FunctionChoice(StrictModel):
    name: FunctionName


class NamedToolChoice(StrictModel):
    """The model must call this function."""

    type: Literal["function"]
    function: FunctionChoice

    @property
    def name(self) -> str:
        return self.function.name


def _tool_choice(value: object) -> str | NamedToolChoice | None:
    if value is None or (isinstance(value, str) and value in _TOOL_CHOICES):
        return value
    # Not a union of models: pydantic would put the members' names into the field's path.
    match value:
        case {"type": "function", "function": {"name": name, **other}, **rest} if not other | rest:
            function = FunctionChoice(name=_function_name(name))
            return NamedToolChoice(type="function", function=function)
    raise ValueError(
        'must be "none", "auto", "required" or {"type": "function", "function": {"name": ...}}'
    )


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedToolChoice | None,
    PlainValidator(
        _tool_choice,
        json_schema_input_type=Literal["none", "auto", "required"] | NamedToolChoice | None,
    ),
]


class CalledFunction(StrictModel):
    name: FunctionName
    arguments: Arguments
    """An object; a request gives it as JSON text."""


class ToolCall(StrictModel):
    """A call in an assistant's message of the conversation so far."""

    id: Text
    type: Literal["function"]
    function: CalledFunction


class ToolRequestFields(StrictModel):
    """What tools add to a chat request; to be inherited."""

    tools: list[Tool] | None = None
    tool_choice: ToolChoice = None
    """Left out: "auto" where there are tools, "none" where there are none."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may hold several calls; true if left out."""


class ToolMessageFields(StrictModel):
    """What tools add to a chat message; to be inherited."""

    tool_calls: list[ToolCall] | None = None
    """Of an assistant's message."""
    tool_call_id: Text | None = None
    """Of a "tool" message: the call that it answers."""
