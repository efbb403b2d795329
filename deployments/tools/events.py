"""What a reply turns out to hold while its text arrives: content, and calls."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from deployments.tools.source import JSON_SPACES


@dataclass(frozen=True, slots=True)
class ContentText:
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    index: int
    """0 for the reply's first call."""
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    index: int
    fragment: str
    """All fragments of a call, joined, are the arguments' JSON text as the model wrote it."""


Event = ContentText | CallStarted | CallArguments


class Reply:
    """Collects the events of one reply.

    White space directly before a call, and between the last call and the end, belongs to the
    layout of calls and is dropped; so content waits while it ends in white space.
    """

    def __init__(self, make_call_id: Callable[[int], str], max_calls: int | None) -> None:
        self._make_call_id = make_call_id
        self._max_calls = max_calls
        self._events: list[Event] = []
        self._spaces: list[str] = []
        self._follows_call = False
        self.num_calls = 0

    @property
    def is_full(self) -> bool:
        return self.num_calls == self._max_calls

    def content(self, text: str) -> None:
        shown = text.rstrip(JSON_SPACES)
        if shown:
            self._release_spaces()
            self._events.append(ContentText(shown))
            self._follows_call = False
        self._spaces.append(text[len(shown) :])

    def start_call(self, name: str) -> None:
        self._spaces.clear()
        self._events.append(CallStarted(self.num_calls, self._make_call_id(self.num_calls), name))
        self._follows_call = True
        self.num_calls += 1

    def arguments(self, fragment: str) -> None:
        """More of the latest call's arguments."""
        self._events.append(CallArguments(self.num_calls - 1, fragment))

    def finish(self) -> None:
        """Nothing more comes."""
        if not self._follows_call:
            self._release_spaces()
        self._spaces.clear()

    def drain(self) -> list[Event]:
        """Events since the last call of this, neighbouring texts joined."""
        joined: list[Event] = []
        for _, group in groupby(self._events, key=_stream_of):
            events = list(group)
            match events[0]:
                case ContentText():
                    texts = [event.text for event in events if isinstance(event, ContentText)]
                    joined.append(ContentText("".join(texts)))
                case CallArguments(index):
                    parts = [event.fragment for event in events if isinstance(event, CallArguments)]
                    joined.append(CallArguments(index, "".join(parts)))
                case CallStarted():
                    joined.extend(events)
        self._events.clear()
        return joined

    def _release_spaces(self) -> None:
        spaces = "".join(self._spaces)
        self._spaces.clear()
        if spaces:
            self._events.append(ContentText(spaces))


def _stream_of(event: Event) -> tuple[type[Event], int]:
    return type(event), -1 if isinstance(event, ContentText) else event.index
