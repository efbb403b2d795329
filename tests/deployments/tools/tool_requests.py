"""Tool fields of requests, parsed as part of one."""

from typing import Any, Literal

import pytest

from deployments.strict_model import StrictModel, Text
from deployments.tools.messages import check_messages
from deployments.tools.offer import ToolOffer, tool_offer
from deployments.tools.schemas import ToolMessageFields, ToolRequestFields
from deployments.validation import validated
from engine.errors import RequestError

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
NOW: dict[str, Any] = {"type": "function", "function": {"name": "now"}}
NAMED_NOW = {"type": "function", "function": {"name": "now"}}


class Message(ToolMessageFields):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | None = None


class Conversation(StrictModel):
    messages: list[Message]


def offer(**fields: Any) -> ToolOffer | None:
    return tool_offer(validated(ToolRequestFields, fields))


def some_offer(**fields: Any) -> ToolOffer:
    made = offer(**fields)
    assert made is not None
    return made


def function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f"} | fields}


def messages_of(*messages: dict[str, Any]) -> list[Message]:
    parsed = validated(Conversation, {"messages": list(messages)}).messages
    check_messages(parsed)
    return parsed


def call(call_id: str, name: str, arguments: object = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def refusal(parse: Any, *args: Any, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(*args, **fields)
    assert str(caught.value).startswith(caught.value.field)
    return caught.value
