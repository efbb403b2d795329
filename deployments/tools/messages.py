"""Calls and their results in a conversation: checked, and as chat templates know them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from deployments.json_values import show
from deployments.tools.families import Family
from deployments.tools.schemas import ToolCall
from engine.errors import RequestError


class ChatMessage(Protocol):
    """A message with `ToolMessageFields`."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str | None: ...
    @property
    def tool_calls(self) -> list[ToolCall] | None: ...
    @property
    def tool_call_id(self) -> str | None: ...


def check_messages(messages: Sequence[ChatMessage]) -> None:
    """Raises RequestError for a message whose fields don't fit its role or what came before."""
    known_ids: set[str] = set()
    for index, message in enumerate(messages):
        if message.content is None and not message.tool_calls:
            raise _error(index, "content", "is required, except with tool_calls")
        if message.tool_calls and message.role != "assistant":
            raise _error(index, "tool_calls", "is for assistant messages only")
        if message.role == "tool" and message.tool_call_id is None:
            raise _error(index, "tool_call_id", "is required in a tool message")
        if message.tool_call_id is not None:
            if message.role != "tool":
                raise _error(index, "tool_call_id", "is for tool messages only")
            if message.tool_call_id not in known_ids:
                shown = show(message.tool_call_id)
                raise _error(
                    index,
                    "tool_call_id",
                    f"must be the id of a call in a message before it, got {shown}",
                )
        ids = [call.id for call in message.tool_calls or ()]
        if len(set(ids)) < len(ids):
            raise _error(index, "tool_calls", f"must have an id of its own each, got {show(ids)}")
        known_ids.update(ids)


def messages_for_template(
    messages: Sequence[ChatMessage], family: Family | None
) -> list[dict[str, Any]]:
    """Checked messages as `apply_chat_template` takes them.

    Raises RequestError for calls or results in them where the model has no family.
    """
    if family is None:
        for index, message in enumerate(messages):
            if message.tool_calls or message.role == "tool":
                field = "tool_calls" if message.tool_calls else "role"
                raise _error(index, field, "can't be given to this model: it knows no tool calls")
        return [_plain(message) for message in messages]
    converted = list(_converted(messages, family))
    return list(_one_call_each(converted)) if family.takes_calls_singly else converted


def _converted(messages: Sequence[ChatMessage], family: Family) -> Iterator[dict[str, Any]]:
    called: dict[str, str] = {}
    """Name of the function last called with an id: templates write it beside the result."""
    for message in messages:
        converted = _plain(message)
        if message.tool_calls:
            converted["tool_calls"] = [
                {
                    "id": family.template_call_id(call.id),
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in message.tool_calls
            ]
            called.update((call.id, call.function.name) for call in message.tool_calls)
        if message.tool_call_id is not None:
            converted["tool_call_id"] = family.template_call_id(message.tool_call_id)
            converted["name"] = called[message.tool_call_id]
        yield converted


def _one_call_each(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A message of several calls becomes several messages, each followed by its call's result."""
    turns: list[list[dict[str, Any]]] = []
    for message in messages:
        if message["role"] == "tool":  # never the first one: it answers a call before it
            turns[-1].append(message)
        else:
            turns.append([message])
    for head, *results in turns:
        calls = head.get("tool_calls", [])
        if len(calls) > 1:
            results_of = defaultdict(list)
            for result in results:
                results_of[result["tool_call_id"]].append(result)
            for number, call in enumerate(calls):
                yield head | {"tool_calls": [call]} | ({"content": ""} if number else {})
                yield from results_of.pop(call["id"], ())
            results = [result for others in results_of.values() for result in others]
        else:
            yield head
        yield from results


def _plain(message: ChatMessage) -> dict[str, Any]:
    # Templates have no developers, and treat content as text without asking.
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": message.content or ""}


def _error(index: int, name: str, complaint: str) -> RequestError:
    field = f"messages[{index}].{name}"
    return RequestError(field, f"{field} {complaint}")
