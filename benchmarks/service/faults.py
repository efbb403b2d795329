"""Faults under load, one at a time: what became of the requests around each, and when all was well
again. Clients ask for the same few things again and again; what each must get was asked for before,
when nothing happened. In float32, where a text does not depend on what else is computed.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx

from benchmarks.progress import Begin
from benchmarks.service.answers import NOTHING, Outcome, Story, Tally
from benchmarks.service.asks import Asks
from benchmarks.service.clients import SdkClient, WireClient
from benchmarks.service.served import INGRESS, POLICY_ACTOR, PROXY, RANK, REPLICA, Served

CLIENTS = 8
CLIENTS_THAT_LEAVE = 4
QUESTIONS = 12
NEW_TOKENS = 48
BEFORE = 4
"""Answers that clients have before anything happens."""
AFTER = 8
"""Answers that they have once all is well again."""
RECOVERY_S = 180.0
POLL_S = 0.25
ANSWERS_IN_A_ROW = 6
SEEN_S = 6.0
"""A replica that has told the policy actor nothing for longer is not counted."""


class Fault(StrEnum):
    NONE = "nothing"
    """To know that the measurement itself loses nothing."""
    REPLICA = "replica killed"
    POLICY_ACTOR = "policy actor killed"
    RANK = "rank killed"
    INGRESS = "ingress killed"
    PROXY = "proxy killed"
    CLIENTS = "clients gone"


VICTIMS = {
    Fault.REPLICA: REPLICA,
    Fault.POLICY_ACTOR: POLICY_ACTOR,
    Fault.RANK: RANK,
    Fault.INGRESS: INGRESS,
    Fault.PROXY: PROXY,
}
IN_THE_WAY = frozenset({Fault.INGRESS, Fault.PROXY})
"""Of what answers pass through: the connections on it end with it, so that requests break."""
PLAIN_FAULTS = (Fault.NONE, Fault.REPLICA, Fault.POLICY_ACTOR, Fault.PROXY, Fault.CLIENTS)
RESILIENT_FAULTS = (*PLAIN_FAULTS, Fault.INGRESS)
RANK_FAULTS = (Fault.NONE, Fault.RANK)


def settings_for(faults: Sequence[Fault], *, resilient: bool) -> dict[str, Any]:
    """Two replicas, or one of two ranks."""
    engine: dict[str, Any] = {"dtype": "float32"}
    replicas: dict[str, Any] = {"num_cpus": 0.5, "num_replicas": 2}
    if Fault.RANK in faults:
        engine["tp_size"], replicas["num_replicas"] = 2, 1
    settings: dict[str, Any] = {"engine": engine, "replicas": replicas}
    return {**settings, "resilient": True} if resilient else settings


def schedule(faults: Sequence[Fault], repeats: int) -> list[Fault]:
    """In turns, so that an interrupted run has seen them all; that of nothing happening once."""
    turns = [fault for _ in range(repeats) for fault in faults if fault is not Fault.NONE]
    return [fault for fault in faults if fault is Fault.NONE] + turns


@dataclass(slots=True)
class FaultRuns:
    """Of one fault and one configuration, so far."""

    tally: Tally = NOTHING
    times: int = 0
    recovery_s: list[float] = field(default_factory=list)
    """From the fault to all being well again."""
    never_well: int = 0
    left_behind: list[str] = field(default_factory=list)
    """Counters that did not come back."""
    details: list[str] = field(default_factory=list)
    """What broken requests saw, in words; the first ones of each time."""


async def expected_texts(served: Served, asks: Asks) -> list[str]:
    """Of the questions, while nothing happens. Raises RuntimeError where one has no answer."""
    async with SdkClient(served.url) as client:
        tries = [await client.ask(asks.seeded(n, NEW_TOKENS)) for n in range(QUESTIONS)]
    for one in tries:
        if one.outcome is not Outcome.COMPLETE:
            raise RuntimeError(f"no answer though nothing happened: {one.outcome}: {one.detail}")
    return [one.text for one in tries]


async def run_faults(
    served: Served,
    asks: Asks,
    faults: Sequence[Fault],
    num_replicas: int,
    begin: Begin,
    found: dict[Fault, FaultRuns],
) -> None:
    begin("texts when nothing happens")
    texts = await expected_texts(served, asks)
    draw = random.Random(2)
    for fault in faults:
        begin(fault)
        runs = found.setdefault(fault, FaultRuns())
        await Happening(served, asks, texts, num_replicas, draw).happen(fault, runs)


class Happening:
    """One fault, and the load around it."""

    def __init__(
        self,
        served: Served,
        asks: Asks,
        texts: Sequence[str],
        num_replicas: int,
        draw: random.Random,
    ) -> None:
        self._served = served
        self._asks = asks
        self._texts = texts
        self._num_replicas = num_replicas
        self._draw = draw
        self._stories: list[Story] = []
        self._answered = asyncio.Event()
        self._is_over = False

    async def happen(self, fault: Fault, runs: FaultRuns) -> None:
        """Adds what came of it to `runs`."""
        async with SdkClient(self._served.url) as sdk, asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._client(sdk, number))
            await self._answers(BEFORE)
            await asyncio.sleep(self._draw.uniform(0.0, 1.0))
            begun = time.monotonic()
            alive = self._served.pids()
            await self._do(fault, alive, sdk)
            is_well = await self._well_again(fault, alive)
            if is_well:
                runs.recovery_s.append(time.monotonic() - begun)
                await self._answers(AFTER)
            self._is_over = True
        runs.times += 1
        runs.never_well += not is_well
        runs.tally += Tally.of(self._stories)
        broken = [story for story in self._stories if story.is_broken]
        runs.details += [f"{s.tries[0].outcome}: {s.tries[0].detail}" for s in broken[:3]]
        runs.left_behind += await self._left_behind()

    async def _client(self, sdk: SdkClient, number: int) -> None:
        """Streams and whole answers in turns."""
        turn = number
        while not self._is_over:
            question = turn % len(self._texts)
            body = self._asks.seeded(question, NEW_TOKENS)
            body["stream"] = (turn // len(self._texts) + number) % 2 == 0
            self._stories.append(await sdk.insist(body, self._texts[question]))
            self._answered.set()
            turn += CLIENTS + 1

    async def _answers(self, more: int) -> None:
        """Wait for so many."""
        enough = len(self._stories) + more
        while len(self._stories) < enough:
            self._answered.clear()
            await self._answered.wait()

    async def _do(self, fault: Fault, alive: dict[str, set[int]], sdk: SdkClient) -> None:
        if fault in VICTIMS:
            self._served.kill(self._draw.choice(sorted(alive[VICTIMS[fault]])))
        elif fault is Fault.CLIENTS:
            await asyncio.gather(*(self._leave(sdk) for _ in range(CLIENTS_THAT_LEAVE)))

    async def _leave(self, sdk: SdkClient) -> None:
        body = {**self._asks.seeded(self._draw.randrange(2**20), 1000), "stream": True}
        done = await sdk.leave(body, self._draw.uniform(0.5, 3.0))
        self._stories.append(Story((done,)))

    async def _well_again(self, fault: Fault, before: dict[str, set[int]]) -> bool:
        """Whether as many processes of each kind run as before, and all replicas tell of
        themselves; False when they don't in a long time."""
        deadline = time.monotonic() + RECOVERY_S
        victim = VICTIMS.get(fault)
        while time.monotonic() < deadline:
            now = self._served.pids()
            replaced = victim is None or now[victim] != before[victim]
            complete = all(len(now[kind]) >= len(before[kind]) for kind in VICTIMS.values())
            if replaced and complete and await self._all_ready():
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _all_ready(self) -> bool:
        try:
            async with WireClient(self._served.url) as wire, asyncio.timeout(SEEN_S):
                described = await wire.get("/policy")
        except (httpx.HTTPError, TimeoutError):
            return False
        ready = [
            replica
            for replica in described["replicas"]
            if replica["stage"] == "ready" and replica["seen_s_ago"] < SEEN_S
        ]
        return bool(described["policy_actor"]["reachable"]) and len(ready) == self._num_replicas

    async def _left_behind(self) -> list[str]:
        """What engines still have though nobody asks for anything. Which replica answers is chance,
        so several answers in a row must be clean."""
        deadline, clean, left = time.monotonic() + RECOVERY_S / 3, 0, ["not asked"]
        async with WireClient(self._served.url) as wire:
            while clean < ANSWERS_IN_A_ROW and time.monotonic() < deadline:
                left = await _engine_left(wire)
                clean = 0 if left else clean + 1
                if left:
                    await asyncio.sleep(POLL_S)
        return left


async def _engine_left(wire: WireClient) -> list[str]:
    try:
        engine = (await wire.get("/health"))["engine"]
    except httpx.HTTPError as error:
        return [f"/health: {error!r}"]
    counts = {
        "requests running": engine["num_running"],
        "requests waiting": engine["num_waiting"],
        "blocks in use": engine["num_blocks"] - engine["num_free_blocks"],
    }
    return [f"{name}: {count}" for name, count in counts.items() if count]
