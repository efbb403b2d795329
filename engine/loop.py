"""The engine's own thread, and the bridge from asyncio to it and back.

asyncio side                         engine thread
generate() --- Add, Abort, SetTable ---> commands, between two steps
   ^                                         step()
   +------------- deltas, once a step -------+
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TypeAlias

from engine.core import Engine, EngineStatus
from engine.errors import EngineDead, PacelineError
from engine.request import Request, TokenDelta
from policy.stats import StatsWindow
from policy.table import SpeculationTable

logger = logging.getLogger(__name__)

ACCEPTED = "accepted"
StreamItem: TypeAlias = TokenDelta | PacelineError | str


@dataclass(frozen=True, slots=True)
class _Stream:
    """Where a request's deltas go: a queue of the event loop that asked for them."""

    loop: asyncio.AbstractEventLoop
    queue: "asyncio.Queue[StreamItem]" = field(default_factory=asyncio.Queue)


@dataclass(frozen=True, slots=True)
class _Add:
    request: Request
    stream: _Stream


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: str
    stream: _Stream


@dataclass(frozen=True, slots=True)
class _SetTable:
    table: SpeculationTable


class EngineLoop:
    """Owns the engine. Every method may be called from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: deque[_Add | _Abort | _SetTable] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._dead: EngineDead | None = None
        self._streams: dict[str, _Stream] = {}  # engine thread only
        self._window = StatsWindow()  # under _wake
        self._status = engine.status()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def max_model_len(self) -> int:
        return self._engine.max_model_len

    @property
    def vocab_size(self) -> int:
        return self._engine.vocab_size

    # ---- asyncio side

    async def generate(self, request: Request) -> AsyncGenerator[TokenDelta, None]:
        """The request's deltas, one a step, the last with a finish reason.

        Raises EngineFull, RequestError or EngineDead before the first delta, EngineDead also later.
        Closing or cancelling the iterator aborts the request: its blocks are free a step later.
        """
        stream = _Stream(asyncio.get_running_loop())
        self._post(_Add(request, stream))
        ended = False
        try:
            while not ended:
                item = await stream.queue.get()
                if isinstance(item, PacelineError):
                    ended = True
                    raise item
                if isinstance(item, TokenDelta):
                    ended = item.finish_reason is not None
                    yield item
        finally:
            if not ended:
                self._post(_Abort(request.request_id, stream))

    def set_table(self, table: SpeculationTable) -> None:
        """Put `table` in force between two steps."""
        self._post(_SetTable(table))

    def status(self) -> EngineStatus:
        """State after the last step or command."""
        return self._status

    def drain_stats(self) -> StatsWindow:
        """The counts since the last call."""
        with self._wake:
            window, self._window = self._window, StatsWindow()
            window.table_version = self._status.table_version
        return window

    def check_health(self) -> None:
        """Raises EngineDead when a step failed or the thread is gone."""
        if self._dead is not None:
            raise EngineDead(str(self._dead))
        if not self._thread.is_alive():
            raise EngineDead("the engine thread is not running")

    def close(self) -> None:
        """End the thread after the step in progress; requests in flight end with EngineDead."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _post(self, command: _Add | _Abort | _SetTable) -> None:
        with self._wake:
            if self._dead is None and not self._closing:
                self._commands.append(command)
                self._wake.notify()
                return
        if isinstance(command, _Add):
            raise EngineDead(str(self._dead or "the engine is shutting down"))

    # ---- engine thread

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._apply_commands()
                if self._engine.has_work:
                    self._step()
            self._die(EngineDead("the engine is shutting down"))
        except Exception as error:  # whatever it was, nobody may be left waiting
            logger.exception("an engine step failed")
            self._die(EngineDead(f"an engine step failed: {type(error).__name__}: {error}"))
        finally:
            self._engine.close()

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (self._commands or self._engine.has_work or self._closing):
                self._wake.wait()
            return not self._closing

    def _apply_commands(self) -> None:
        while self._commands:
            match self._commands.popleft():
                case _Add(request, stream):
                    self._add(request, stream)
                case _Abort(request_id, stream):
                    # A request that was refused for its id must not take down its namesake.
                    if self._streams.get(request_id) is stream:
                        del self._streams[request_id]
                        self._engine.abort(request_id)
                case _SetTable(table):
                    self._engine.set_table(table)
        self._status = self._engine.status()

    def _add(self, request: Request, stream: _Stream) -> None:
        try:
            self._engine.add(request)
        except PacelineError as error:
            _deliver([(stream, error)])
        else:
            self._streams[request.request_id] = stream
            _deliver([(stream, ACCEPTED)])

    def _step(self) -> None:
        deltas = self._engine.step()
        window = self._engine.drain_stats()
        with self._wake:
            self._window.merge(window)
        self._status = self._engine.status()
        items: list[tuple[_Stream, StreamItem]] = []
        for delta in deltas:
            stream = self._streams[delta.request_id]
            if delta.finish_reason is not None:
                del self._streams[delta.request_id]
            items.append((stream, delta))
        _deliver(items)

    def _die(self, error: EngineDead) -> None:
        with self._wake:
            self._dead = error
            pending = [c.stream for c in self._commands if isinstance(c, _Add)]
            self._commands.clear()
        _deliver([(stream, error) for stream in (*self._streams.values(), *pending)])
        self._streams.clear()


def _deliver(items: list[tuple[_Stream, StreamItem]]) -> None:
    """Hand over a step's items: one wake-up for each event loop, not one for each request."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Stream, StreamItem]]] = {}
    for stream, item in items:
        by_loop.setdefault(stream.loop, []).append((stream, item))
    for loop, batch in by_loop.items():
        try:
            loop.call_soon_threadsafe(_put_all, batch)
        except RuntimeError:
            # The event loop was closed with requests in flight: nobody is left to tell.
            logger.debug("an event loop went away with %d deltas undelivered", len(batch))


def _put_all(batch: list[tuple[_Stream, StreamItem]]) -> None:
    for stream, item in batch:
        stream.queue.put_nowait(item)
