"""The replica's side of the policy: wait for tables, apply them, report counts. Never stops.

The policy actor may die at any time. Until it is back the replica keeps the table it holds; the
handle is looked up anew after each failure, with a growing, jittered pause.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from engine.errors import PacelineError
from engine.events import log_event
from policy.board import Introduction, Publication
from policy.stats import Occupancy, StatsWindow
from policy.table import SpeculationTable

logger = logging.getLogger(__name__)


class PolicyActorLost(PacelineError):
    """The policy actor does not answer. Serve starts another; replicas keep their table."""


class PolicyClient(Protocol):
    """A policy actor, as a replica sees it. Any method may raise when the actor is gone."""

    async def newer_than(self, replica_id: str, held: Publication) -> Publication | None: ...

    async def introduce(self, replica_id: str, said: Introduction) -> None: ...

    async def observe(self, replica_id: str, window: StatsWindow) -> dict[str, Any] | None: ...

    async def note_stage(self, replica_id: str, stage: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ChannelTimings:
    """Periods of the channel, in seconds."""

    report_s: float = 2.0
    first_pause_s: float = 0.2
    longest_pause_s: float = 2.0
    answer_s: float = 45.0
    """No answer to a long poll for this long means the actor is lost; above its own limit."""


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """What the replica holds and how fresh that is."""

    held: Publication
    connected: bool
    heard_s_ago: float | None
    """Seconds since the actor last answered; None: it never has."""


class _State(NamedTuple):
    """What a report says beside its counts: while it stays, a replica without work is silent."""

    table_version: int
    occupancy: Occupancy
    is_idle: bool


class PolicyChannel:
    """Keeps one replica subscribed. All methods belong to one event loop."""

    def __init__(
        self,
        replica_id: str,
        initial: Publication,
        connect: Callable[[], Awaitable[PolicyClient]],
        apply: Callable[[SpeculationTable], None],
        drain_stats: Callable[[], StatsWindow],
        timings: ChannelTimings = ChannelTimings(),
        *,
        introduction: Introduction | None = None,
        keep: Callable[[dict[str, Any]], None] = lambda learned: None,
    ) -> None:
        """`introduction`: what an actor is told first; `keep`: takes what actors have learned, for
        the next start of a replica of this kind."""
        self._replica_id = replica_id
        self._held = initial
        self._connect = connect
        self._apply = apply
        self._drain_stats = drain_stats
        self._timings = timings
        self._introduction = introduction
        self._keep = keep
        self._client: PolicyClient | None = None
        self._stage = ""
        self._stage_told = False
        self._unsent = StatsWindow()
        self._drained_at_s = time.monotonic()
        self._reported: _State | None = None
        self._heard_at_s: float | None = None
        self._report_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to poll and to report. Needs a running event loop."""
        self._tasks = [
            asyncio.create_task(self._poll(), name="policy-poll"),
            asyncio.create_task(self._report(), name="policy-report"),
        ]

    async def close(self) -> None:
        """Stop both tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def set_stage(self, stage: str) -> None:
        """Tell the actor, sooner or later, what this replica is doing."""
        self._stage = stage
        self._stage_told = False
        self._reported = None
        self._report_due.set()

    def status(self) -> ChannelStatus:
        heard_at_s = self._heard_at_s
        return ChannelStatus(
            held=self._held,
            connected=self._client is not None,
            heard_s_ago=None if heard_at_s is None else time.monotonic() - heard_at_s,
        )

    async def _poll(self) -> None:
        pause_s = self._timings.first_pause_s
        while True:
            try:
                client = await self._connected()
                async with asyncio.timeout(self._timings.answer_s):
                    newer = await client.newer_than(self._replica_id, self._held)
                if newer is not None:
                    self._apply(newer.table)
                    self._held = newer
                    log_event(
                        logger,
                        "table",
                        version=newer.table.version,
                        lengths=dict(newer.table.rungs),
                        mode=newer.mode,
                        source=newer.source,
                        why=newer.why,
                    )
                    self._report_due.set()
            except Exception as error:  # whatever it is, the answer is to try again
                self._lost(error)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, self._timings.longest_pause_s)
                continue
            pause_s = self._timings.first_pause_s
            self._heard_at_s = time.monotonic()

    async def _report(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timings.report_s):
                    await self._report_due.wait()
            self._report_due.clear()
            self._unsent.merge(self._drained())
            client, window = self._client, self._unsent
            state = _State(window.table_version, window.occupancy, is_idle=not window.steps)
            if client is None or (state.is_idle and state == self._reported):
                continue
            self._unsent = StatsWindow(state.table_version, state.occupancy)
            try:
                async with asyncio.timeout(self._timings.answer_s):
                    if not self._stage_told:
                        # A call of its own for each report would cost the actor as much again.
                        self._stage_told = True
                        await client.note_stage(self._replica_id, self._stage)
                    learned = await client.observe(self._replica_id, window)
            except Exception:  # counts are kept for the next actor
                self._stage_told = False
                window.merge(self._unsent)
                self._unsent = window
                continue
            self._reported = state
            self._heard_at_s = time.monotonic()
            if learned is not None:
                if self._introduction is not None:
                    self._introduction = replace(self._introduction, learned=learned)
                self._keep(learned)

    def _drained(self) -> StatsWindow:
        window, before_s = self._drain_stats(), self._drained_at_s
        self._drained_at_s = time.monotonic()
        if window.steps:
            window.wall_seconds = self._drained_at_s - before_s
        return window

    async def _connected(self) -> PolicyClient:
        if self._client is None:
            client = await self._connect()
            if self._introduction is not None:
                async with asyncio.timeout(self._timings.answer_s):
                    await client.introduce(self._replica_id, self._introduction)
            self._client = client
            self._stage_told = False
            self._reported = None
            self._report_due.set()
        return self._client

    def _lost(self, error: Exception) -> None:
        if self._client is not None:
            logger.warning(
                "Policy actor lost (%s); table version %d stays in force",
                type(error).__name__,
                self._held.table.version,
            )
        self._client = None
