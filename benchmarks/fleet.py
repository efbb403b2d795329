"""Replicas without engines: the channel that a replica has, with counts that were made before."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.policy_channel import ChannelTimings, PolicyChannel
from cluster.policy_client import RayPolicyClient
from policy.board import Introduction, initial_publication
from policy.choice import parse_choice
from policy.cost import Calibration, CostCell
from policy.stats import StatsWindow
from policy.table import SpeculationTable

CONFIGURED = "adaptive"
MAX_BATCH, MAX_DRAFT_LEN = 32, 8
IN_TIME_S = ChannelTimings().report_s
"""A report is answered in time if it is before the next one is due."""
_LONGEST_WAIT_S = 60.0


@dataclass(slots=True)
class Reports:
    """Round trips of reports, in seconds."""

    begun: dict[int, float] = field(default_factory=dict)
    """When those without an answer were begun, by number."""
    answered_s: list[float] = field(default_factory=list)
    failed: int = 0
    num_begun: int = 0

    def begin(self) -> int:
        self.num_begun += 1
        self.begun[self.num_begun] = time.perf_counter()
        return self.num_begun

    def end(self, number: int, *, has_answer: bool) -> None:
        """Of one that was begun before the counts were last made anew: nothing."""
        begun = self.begun.pop(number, None)
        if begun is not None and has_answer:
            self.answered_s.append(time.perf_counter() - begun)
        elif begun is not None:
            self.failed += 1

    def in_time(self, now: float) -> float:
        """Share of those whose time is over. Raises ValueError when there is none."""
        late = sum(now - begun > IN_TIME_S for begun in self.begun.values())
        return share_in_time(self.answered_s, late + self.failed)


def share_in_time(answered_s: Sequence[float], unanswered: int) -> float:
    """Of reports, `unanswered` of them without an answer. Raises ValueError when there are none."""
    total = len(answered_s) + unanswered
    if not total:
        raise ValueError("there were no reports")
    return sum(seconds <= IN_TIME_S for seconds in answered_s) / total


class _TimedClient(RayPolicyClient):
    def __init__(self, handle: Any, reports: Callable[[], Reports]) -> None:
        super().__init__(handle)
        self._reports = reports

    async def observe(self, replica_id: str, window: StatsWindow) -> dict[str, Any] | None:
        reports = self._reports()
        number = reports.begin()
        has_answer = False
        try:
            learned = await super().observe(replica_id, window)
            has_answer = True
        finally:
            reports.end(number, has_answer=has_answer)
        return learned


class Fleet:
    """Replicas without engines, all of one event loop."""

    def __init__(self, handle: Any, said: Introduction, windows: Sequence[StatsWindow]) -> None:
        """What all of them say of themselves, and what they report, in any order."""
        self._handle = handle
        self._initial = initial_publication(parse_choice(CONFIGURED))
        self._said = said
        self._windows = windows
        self._channels: list[PolicyChannel] = []
        self._held: list[int] = []
        """The version that each replica holds."""
        self._wanted = 0
        self._behind: set[int] = set()
        """Replicas that hold an older version than is wanted."""
        self._all_there = asyncio.Event()
        self._last_arrival_s = 0.0
        self.reports = Reports()

    @property
    def size(self) -> int:
        return len(self._channels)

    async def grow(self, size: int) -> None:
        """Add replicas over the time from one report to the next, so that theirs come evenly."""
        missing = size - self.size
        for _ in range(missing):
            channel = self._channel(self.size)
            self._channels.append(channel)
            self._held.append(0)
            channel.start()
            await asyncio.sleep(IN_TIME_S / missing)

    async def wait_for(self, version: int) -> float:
        """When the last replica came to hold this version or a later one, of `time.perf_counter`.
        Raises TimeoutError."""
        self._wanted = version
        self._behind = {number for number, held in enumerate(self._held) if held < version}
        self._all_there.clear()
        if self._behind:
            async with asyncio.timeout(_LONGEST_WAIT_S):
                await self._all_there.wait()
        return self._last_arrival_s

    async def close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def _channel(self, number: int) -> PolicyChannel:
        draw = random.Random(number)

        async def connect() -> RayPolicyClient:
            return _TimedClient(self._handle, lambda: self.reports)

        def apply(table: SpeculationTable) -> None:
            self._held[number] = table.version
            if number in self._behind and table.version >= self._wanted:
                self._behind.remove(number)
                self._last_arrival_s = time.perf_counter()
                if not self._behind:
                    self._all_there.set()

        return PolicyChannel(
            f"replica-{number}",
            self._initial,
            connect,
            apply,
            lambda: draw.choice(self._windows),
            introduction=self._said,
        )


def made_up_calibration() -> Calibration:
    """Of a machine on which drafting pays for small batches."""
    return Calibration(
        tuple(
            CostCell(
                size,
                length,
                context,
                target_seconds=0.02 + 0.0015 * size * (length + 1) * (1 + context / 4096),
                draft_seconds=(0.002 + 0.0001 * size) * length,
            )
            for size in (1, 2, 4, 8, 16, MAX_BATCH)
            for length in (0, 1, 2, 4, MAX_DRAFT_LEN)
            for context in (128, 1024)
        )
    )
