"""The engine's own thread, and the bridge from asyncio to it and back.

asyncio side                         engine thread
generate() --- Add, Abort, SetTable ---> commands, between two steps
   ^                                         step()
   +------------- deltas, once a step -------+
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from engine.core import Engine, EngineStatus
from engine.errors import EngineDead, PacelineError
from engine.progress import Patience
from engine.request import FinishReason, GrammarSpec, Request, TokenDelta
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
    requests: tuple[Request, ...]
    stream: _Stream


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: str
    stream: _Stream | None
    """The stream that gave the request up; None: whichever it has, which is to be told."""


@dataclass(frozen=True, slots=True)
class _SetTable:
    table: SpeculationTable


class EngineLoop:
    """Owns the engine. Every method may be called from any thread."""

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], float] = time.monotonic,
        *,
        token_s: float = math.inf,
    ) -> None:
        """`clock`: seconds, to tell whether the engine has stalled. `token_s`: what a token takes
        at best, as `rehearse` says."""
        self._engine = engine
        self._clock = clock
        self._patience = Patience(engine.stall_s, token_s)  # noted by the engine thread
        self._waited_since: float | None = None
        """When the last step ended, or work came to an idle engine; None while it is idle."""
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

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._engine.eos_token_ids

    # ---- asyncio side

    async def generate(self, *requests: Request) -> AsyncGenerator[TokenDelta, None]:
        """The requests' deltas, one a step each, the last of each with a finish reason.

        All requests are taken, or none: raises EngineFull, RequestError, GrammarError or EngineDead
        before the first delta, EngineDead also later. Closing or cancelling the iterator aborts
        those that have not ended: their blocks are free a step later.
        """
        stream = _Stream(asyncio.get_running_loop())
        self._post(_Add(requests, stream))
        open_ids = {request.request_id for request in requests}
        try:
            while open_ids:
                item = await stream.queue.get()
                if isinstance(item, PacelineError):
                    open_ids.clear()
                    raise item
                if isinstance(item, TokenDelta):
                    if item.finish_reason is not None:
                        open_ids.discard(item.request_id)
                    yield item
        finally:
            for request_id in open_ids:
                self._post(_Abort(request_id, stream))

    def abort(self, request_id: str) -> None:
        """End one request of those that a `generate` is waiting for, which is told so. Harmless
        when it has ended."""
        self._post(_Abort(request_id, None))

    async def compile_grammar(self, spec: GrammarSpec) -> None:
        """Have a grammar ready for a request to come. May take a while; raises GrammarError, and
        EngineFull where too many are waiting."""
        await self._engine.grammars.prepare(spec)

    async def health(self) -> EngineStatus:
        """The status of an engine that works. Raises EngineDead."""
        self.check_health()
        return self._status

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
            window.occupancy = self._status.occupancy
        return window

    def check_health(self) -> None:
        """Raises EngineDead when a step failed, the thread is gone, or there is work and no step
        has been finished for too long (`Patience`)."""
        if self._dead is not None:
            raise EngineDead(str(self._dead))
        if not self._thread.is_alive():
            raise EngineDead("the engine thread is not running")
        if self._engine.failure is not None:
            raise EngineDead(self._engine.failure)
        since = self._waited_since
        if since is None:
            return
        waited_s, limit_s = self._clock() - since, self._patience.limit_s(self._engine.step_tokens)
        if waited_s > limit_s:
            raise EngineDead(
                f"the engine has work and has finished no step for {waited_s:.0f} s; "
                f"{limit_s:.0f} s are allowed"
            )

    def close(self) -> None:
        """End the thread after the step in progress; requests in flight end with EngineDead."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is None:
            self._thread.start()  # for those who are waiting for it already
        self._thread.join()

    def _post(self, command: _Add | _Abort | _SetTable) -> None:
        with self._wake:
            if self._dead is None and not self._closing:
                self._commands.append(command)
                if self._waited_since is None:
                    self._waited_since = self._clock()
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
        # Whatever it was, nobody may be left waiting; a panic in Rust code is no Exception.
        except BaseException as error:
            logger.exception("an engine step failed")
            self._die(EngineDead(f"an engine step failed: {type(error).__name__}: {error}"))
        finally:
            self._engine.close()

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (self._commands or self._engine.has_work or self._closing):
                self._waited_since = None
                self._wake.wait()
            return not self._closing

    def _apply_commands(self) -> None:
        while self._commands:
            match self._commands[0]:
                case _Add(requests, stream):
                    self._add(requests, stream)
                case _Abort(request_id, stream):
                    self._abort(request_id, stream)
                case _SetTable(table):
                    self._engine.set_table(table)
            self._commands.popleft()  # only now: if it failed, whoever sent it is told too
        self._status = self._engine.status()

    def _add(self, requests: tuple[Request, ...], stream: _Stream) -> None:
        try:
            self._engine.add(*requests)
        except PacelineError as error:
            _deliver([(stream, error)])
        else:
            self._streams.update((request.request_id, stream) for request in requests)
            _deliver([(stream, ACCEPTED)])

    def _abort(self, request_id: str, stream: _Stream | None) -> None:
        # A request that was refused for its id must not take down its namesake.
        if request_id not in self._streams or stream not in (None, self._streams[request_id]):
            return
        owner = self._streams.pop(request_id)
        self._engine.abort(request_id)
        if stream is None:
            _deliver([(owner, TokenDelta(request_id, finish_reason=FinishReason.ABORT))])

    def _step(self) -> None:
        started, steps_before = self._clock(), self._status.steps
        deltas = self._engine.step()
        window = self._engine.drain_stats()
        with self._wake:
            self._window.merge(window)
        self._status = self._engine.status()
        if self._status.steps != steps_before:
            self._waited_since = self._clock()
            self._patience.note(self._engine.step_tokens, self._waited_since - started)
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
        told = dict.fromkeys((*self._streams.values(), *pending))  # once, though it has several
        _deliver([(stream, error) for stream in told])
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
