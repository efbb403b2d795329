"""A request of the Responses API as a chat request, and a chat's complaints in its own words."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deployments.openai.responses.schemas import (
    CallItem,
    CallOutputItem,
    MessageItem,
    ResponsesRequest,
)
from deployments.openai.schemas import ChatRequest
from engine.errors import RequestError

_SAME_IN_BOTH = (
    "model",
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "seed",
    "top_k",
    "min_p",
    "priority",
    "timeout",
)
_RENAMED = (
    (re.compile(r"^max_(completion_)?tokens$"), "max_output_tokens"),
    (re.compile(r"^response_format\.json_schema\b"), "text.format"),
    (re.compile(r"^response_format\b"), "text.format"),
    (re.compile(r"^(tools\[\d+\])\.function\b"), r"\1"),
    (re.compile(r"^tool_choice\.function\b"), "tool_choice"),
)


@dataclass(frozen=True, slots=True)
class Translation:
    chat: ChatRequest
    fields: "Fields"


class Fields:
    """Which part of the request each part of the chat came from."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self._calls: list[list[str]] = []

    def add_message(self, source: str) -> None:
        self._messages.append(source)
        self._calls.append([])

    def add_call(self, source: str) -> None:
        """To the message added last."""
        self._calls[-1].append(source)

    @contextmanager
    def renamed(self) -> Iterator[None]:
        """RequestErrors raised within name the fields of the request, not of the chat."""
        try:
            yield
        except RequestError as error:
            name = self._name(error.field)
            raise type(error)(name, str(error).replace(error.field, name)) from None

    def _name(self, field: str) -> str:
        if found := re.match(r"messages\[(\d+)\](?:\.(\w+)(?:\[(\d+)\])?)?", field):
            message, name, call = int(found[1]), found[2], found[3]
            rest = field[found.end() :].removeprefix(".function")
            if call is not None:
                return self._calls[message][int(call)] + rest.replace(".id", ".call_id")
            if name == "tool_calls":
                return self._calls[message][0]
            source = self._messages[message]
            if source == "instructions" or name is None:
                return source
            return f"{source}.{'call_id' if name == 'tool_call_id' else name}"
        if field == "messages":
            return "input"
        for pattern, name in _RENAMED:
            if pattern.search(field):
                return pattern.sub(name, field)
        return field


def translated(request: ResponsesRequest) -> Translation:
    """Raises RequestError."""
    fields = Fields()
    messages = _messages(request, fields)
    body: dict[str, Any] = {name: getattr(request, name) for name in _SAME_IN_BOTH}
    body |= {
        "messages": messages,
        "max_completion_tokens": request.max_output_tokens,
        "stream": request.stream,
        "include_speculation_metrics": request.include_speculation_metrics,
        # In a stream the last event has the whole response, usage included.
        "stream_options": {"include_usage": True} if request.stream else None,
        "tools": _tools(request),
        "tool_choice": _tool_choice(request),
        "response_format": _response_format(request),
    }
    if request.speculation is not None:
        body["speculation"] = request.speculation.model_dump()
    with fields.renamed():
        chat = ChatRequest.parse({key: value for key, value in body.items() if value is not None})
    return Translation(chat, fields)


def _messages(request: ResponsesRequest, fields: Fields) -> list[dict[str, Any]]:
    """Calls join the assistant's message before them, as one turn."""
    messages: list[dict[str, Any]] = []

    def add(source: str, **message: Any) -> None:
        messages.append(message)
        fields.add_message(source)

    if request.instructions is not None:
        add("instructions", role="system", content=request.instructions)
    is_list = not isinstance(request.input, str)
    for index, item in enumerate(request.items()):
        source = f"input[{index}]" if is_list else "input"
        match item:
            case MessageItem():
                add(source, role=item.role, content=item.content)
            case CallOutputItem():
                add(source, role="tool", content=item.output, tool_call_id=item.call_id)
            case CallItem():
                if not messages or messages[-1]["role"] != "assistant":
                    add(source, role="assistant")
                fields.add_call(source)
                function = {"name": item.name, "arguments": item.arguments}
                call = {"id": item.call_id, "type": "function", "function": function}
                messages[-1].setdefault("tool_calls", []).append(call)
    return messages


def _tools(request: ResponsesRequest) -> list[dict[str, Any]] | None:
    if request.tools is None:
        return None
    return [
        {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_unset=True)}
        for tool in request.tools
    ]


def _tool_choice(request: ResponsesRequest) -> str | dict[str, Any] | None:
    choice = request.tool_choice
    if isinstance(choice, Mapping):
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def _response_format(request: ResponsesRequest) -> dict[str, Any] | None:
    """Raises RequestError for a schema's fields where the type takes none."""
    asked = request.text.format if request.text else None
    if asked is None:
        return None
    given = asked.model_dump(exclude={"type"}, exclude_none=True, by_alias=True)
    if asked.type == "json_schema":
        return {"type": asked.type, "json_schema": given}
    for name in given:
        raise RequestError(
            f"text.format.{name}", f'text.format.{name} needs text.format.type "json_schema"'
        )
    return {"type": asked.type}
