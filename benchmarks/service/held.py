"""More load than can be served, for minutes: who leaves, who asks nonsense, and what stays behind.

The queue is kept short, so that it is full soon and what follows is a steady state: each request
beyond it is refused. Requests come at random times that do not depend on the answers.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.service.answers import Outcome, Try, outcome_of_status
from benchmarks.service.asks import Asks
from benchmarks.service.clients import PATIENCE_S, SdkClient, WireClient
from benchmarks.service.memory import Sample, Windows
from benchmarks.service.served import PROXY, REPLICA, Served, open_files, resident_bytes

OVERLOAD = 1.2
"""Times what is answered with as many clients as the engine runs sequences."""
SETTINGS: dict[str, Any] = {"engine": {"max_num_waiting": 64}}
FEWEST, MOST = 16, 96
"""New tokens."""
SHARE_LEAVING, SHARE_BAD = 0.1, 0.1
"""Of the good requests; beside the good requests."""
LEAVE_WITHIN_S = 20.0
FIRST_CLIENTS, FIRST_LEAVE_WITHIN_S = 8, 2.0
"""That come and go before anything is counted."""
REST_S, REST_LOOKS = 5.0, 10
HEALTH_EVERY_S, HEALTH_LIMIT_S = 2.0, 10.0
WARM_UP_SHARE = 0.3
IDLE_S = 60.0
KEPT_DETAILS = 20
HARMLESS = frozenset({Outcome.COMPLETE, Outcome.BUSY, Outcome.LEFT})
"""For a good request; a bad one must be refused."""


@dataclass(slots=True)
class Held:
    """Measured so far."""

    capacity_rps: float = 0.0
    """Requests answered per second with as many clients as the engine has places."""
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of good requests."""
    bad_outcomes: Counter[str] = field(default_factory=Counter)
    """Of bad ones."""
    num_errors: int = 0
    errors: list[str] = field(default_factory=list)
    """The first ones, in words."""
    health_failures: int = 0
    ttft_s: list[float] = field(default_factory=list)
    memory: dict[str, list[Sample]] = field(default_factory=dict)
    left_behind: dict[str, int] = field(default_factory=dict)
    """By counter: what is not back at what it was before; nothing, if all is well."""
    has_ended: bool = False

    @property
    def num_requests(self) -> int:
        return self.outcomes.total() + self.bad_outcomes.total()

    def windows(self) -> dict[str, Windows]:
        """By kind of process."""
        found = {
            kind: Windows.of(samples, WARM_UP_SHARE * self.seconds)
            for kind, samples in self.memory.items()
        }
        return {kind: windows for kind, windows in found.items() if windows is not None}

    def note(self, done: Try) -> None:
        self.outcomes[done.outcome] += 1
        if done.ttft_s is not None:
            self.ttft_s.append(done.ttft_s)
        if done.outcome not in HARMLESS:
            self.note_error(f"{done.outcome}: {done.detail}")

    def note_bad(self, outcome: Outcome, detail: str) -> None:
        self.bad_outcomes[outcome] += 1
        if outcome not in (Outcome.REFUSED, Outcome.BUSY):
            self.note_error(f"a bad request: {outcome}: {detail}")

    def note_error(self, detail: str) -> None:
        self.num_errors += 1
        if len(self.errors) < KEPT_DETAILS:
            self.errors.append(detail)


async def capacity(served: Served, asks: Asks, clients: int, seconds: float) -> float:
    """Requests answered per second with so many clients, the first part not counted.

    Raises RuntimeError where nothing is answered, however long it is waited for.
    """
    answered: list[float] = []
    begun = time.perf_counter()

    async def client(sdk: SdkClient) -> None:
        while (now := time.perf_counter() - begun) < seconds or not answered:
            if now > seconds + PATIENCE_S:
                raise RuntimeError(f"none of {clients} clients got an answer in {now:.0f} s")
            done = await sdk.ask(asks.mixed(FEWEST, MOST))
            if done.outcome is Outcome.COMPLETE:
                answered.append(time.perf_counter() - begun)

    async with SdkClient(served.url) as sdk, asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(sdk))
    warm = 0.3 * seconds
    counted = sum(warm <= when < seconds for when in answered)
    return counted / (seconds - warm) if counted else len(answered) / answered[-1]


async def hold(served: Served, asks: Asks, seconds: float, found: Held) -> None:
    """`found.capacity_rps` is known."""
    draw = random.Random(1)
    async with SdkClient(served.url) as sdk, WireClient(served.url) as wire:
        clients = _Clients(sdk, wire, asks, draw)
        # Ray opens connections at the first cancelled call, for example, and keeps them.
        first = Held()
        await asyncio.gather(
            *(clients.leave(first, FIRST_LEAVE_WITHIN_S) for _ in range(FIRST_CLIENTS)),
            *(clients.bad(first) for _ in range(FIRST_CLIENTS)),
        )
    before = await _at_rest(served)
    async with SdkClient(served.url) as sdk, WireClient(served.url) as wire:
        clients = _Clients(sdk, wire, asks, draw)
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            watching = [
                group.create_task(_watch_health(wire, found)),
                group.create_task(_watch_memory(served, found, begun)),
            ]
            rate = OVERLOAD * found.capacity_rps * (1 + SHARE_BAD)
            while (now := time.perf_counter() - begun) < seconds:
                found.seconds = now
                is_bad = draw.random() < SHARE_BAD / (1 + SHARE_BAD)
                group.create_task(clients.bad(found) if is_bad else clients.good(found))
                await asyncio.sleep(draw.expovariate(rate))
            for task in watching:
                task.cancel()
    found.left_behind = await _left_behind(served, before)
    found.has_ended = True


class _Clients:
    """One request each, of which `found` is told."""

    def __init__(self, sdk: SdkClient, wire: WireClient, asks: Asks, draw: random.Random) -> None:
        self._sdk = sdk
        self._wire = wire
        self._asks = asks
        self._draw = draw

    async def good(self, found: Held) -> None:
        if self._draw.random() < SHARE_LEAVING:
            await self.leave(found, LEAVE_WITHIN_S)
        else:
            found.note(await self._sdk.ask(self._asks.mixed(FEWEST, MOST)))

    async def leave(self, found: Held, within_s: float) -> None:
        body = self._asks.mixed(FEWEST, MOST)
        found.note(await self._sdk.leave(body, self._draw.uniform(0.0, within_s)))

    async def bad(self, found: Held) -> None:
        ask = self._asks.bad()
        try:
            answer = await self._wire.post_raw(ask.path, ask.content)
        except httpx.HTTPError as error:
            found.note_bad(Outcome.NO_CONNECTION, f"{error!r} {ask.content[:80]!r}")
            return
        outcome = Outcome.COMPLETE
        if answer.status_code != 200:
            outcome = outcome_of_status(answer.status_code)
        found.note_bad(outcome, f"{answer.status_code} {ask.content[:80]!r}")


async def _watch_health(wire: WireClient, found: Held) -> None:
    while True:
        try:
            async with asyncio.timeout(HEALTH_LIMIT_S):
                await wire.get("/health")
        except (httpx.HTTPError, TimeoutError) as error:
            found.health_failures += 1
            found.note_error(f"/health: {error!r}")
        await asyncio.sleep(HEALTH_EVERY_S)


async def _watch_memory(served: Served, found: Held, begun: float) -> None:
    pids = {kind: pids for kind, pids in served.pids().items() if kind in (REPLICA, PROXY)}
    while True:
        now = time.perf_counter() - begun
        for kind, of_kind in pids.items():
            total = sum(map(resident_bytes, of_kind))
            found.memory.setdefault(kind, []).append((now, total))
        await asyncio.sleep(1.0)


async def counters(served: Served, wire: WireClient) -> dict[str, int]:
    """What must come back to what it was once nobody asks for anything."""
    engine = (await wire.get("/health"))["engine"]
    pids = served.pids()
    return {
        "requests running": engine["num_running"],
        "requests waiting": engine["num_waiting"],
        "tokens waiting": engine["num_waiting_tokens"],
        "blocks in use": engine["num_blocks"] - engine["num_free_blocks"],
        "open files of the replica": sum(map(open_files, pids[REPLICA])),
        "open files of the proxy": sum(map(open_files, pids[PROXY])),
    }


async def _at_rest(served: Served) -> dict[str, int]:
    """The least of each counter within a while."""
    async with WireClient(served.url) as wire:
        least = await counters(served, wire)
        for _ in range(REST_LOOKS):
            await asyncio.sleep(REST_S / REST_LOOKS)
            now = await counters(served, wire)
            least = {name: min(count, now[name]) for name, count in least.items()}
    return least


async def _left_behind(served: Served, before: dict[str, int]) -> dict[str, int]:
    """What is still above it when it has had time to come back."""
    deadline = time.monotonic() + IDLE_S
    async with WireClient(served.url) as wire:
        while True:
            now = await counters(served, wire)
            more = {name: now[name] - before[name] for name in now if now[name] > before[name]}
            if not more or time.monotonic() > deadline:
                return more
            await asyncio.sleep(0.5)
