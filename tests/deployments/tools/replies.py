"""Replies run through a parser, and what came out in an order that doesn't show the cuts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deployments.tools.call_reader import Layout
from deployments.tools.events import CallArguments, CallStarted, ContentText, Event
from deployments.tools.parser import ToolCallParser

NAMES = frozenset(("get_weather", "now", "search"))


@dataclass
class Read:
    """A whole reply, as a client would put it together."""

    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(name, arguments as JSON text)"""


def parser_of(layout: Layout, max_calls: int | None = None) -> ToolCallParser:
    return ToolCallParser(layout, NAMES, "id{}".format, max_calls)


def events_of(layout: Layout, pieces: Iterable[str]) -> list[Event]:
    """All events, neighbouring texts joined also across pushes."""
    parser = parser_of(layout)
    events = [event for piece in pieces for event in parser.push(piece)] + parser.finish()
    joined: list[Event] = []
    for event in events:
        match (joined[-1] if joined else None, event):
            case (ContentText(before), ContentText(text)):
                joined[-1] = ContentText(before + text)
            case (CallArguments(index, before), CallArguments(same, fragment)) if index == same:
                joined[-1] = CallArguments(index, before + fragment)
            case _:
                joined.append(event)
    return joined


def put_together(events: Sequence[Event]) -> Read:
    read = Read()
    for event in events:
        match event:
            case ContentText(text):
                read.content += text
            case CallStarted(index, call_id, name):
                assert (index, call_id) == (len(read.calls), f"id{index}")
                read.calls.append((name, ""))
            case CallArguments(index, fragment):
                assert index == len(read.calls) - 1
                name, arguments = read.calls[index]
                read.calls[index] = (name, arguments + fragment)
    return read


def read_reply(layout: Layout, text: str) -> Read:
    """Character by character."""
    return put_together(events_of(layout, text))


def read_whole(layout: Layout, text: str) -> Read:
    return put_together(events_of(layout, [text]))
