"""The incremental parser: a reply's text in, events out, however the text is cut."""

from collections.abc import Callable

from deployments.tools.call_reader import Layout
from deployments.tools.events import Event, Reply
from deployments.tools.source import Source


class ToolCallParser:
    """Reads one reply in linear time.

    What looked like a call and is none (broken JSON, an unknown function, a reply cut off by
    `max_tokens`) comes out as content, character for character. If its arguments were on their way
    already, they stay as they came, so they are then no whole JSON value, and the text from the
    first wrong character on is content.
    """

    def __init__(
        self,
        layout: Layout,
        names: frozenset[str],
        make_call_id: Callable[[int], str],
        max_calls: int | None = None,
    ) -> None:
        self._source = Source()
        self._reply = Reply(make_call_id, max_calls)
        self._steps = layout(self._source, self._reply, names)
        self._is_done = False

    @property
    def num_calls(self) -> int:
        """Calls that have begun."""
        return self._reply.num_calls

    @property
    def is_done(self) -> bool:
        """Whether the reply holds as many calls as it may, the last one being over.

        Generation should then end as at a stop string: nothing after this is looked at.
        """
        return self._is_done

    def push(self, text: str) -> list[Event]:
        """Events that are certain with this text."""
        if not self._is_done:
            self._source.push(text)
            self._advance()
        return self._reply.drain()

    def finish(self) -> list[Event]:
        """The last events, as no more text comes."""
        if not self._is_done:
            self._source.end()
            self._advance()
        self._reply.finish()
        return self._reply.drain()

    def _advance(self) -> None:
        self._is_done = next(self._steps, _ENDED) is _ENDED


_ENDED = object()
