"""The channel against policy actors in the same event loop, whose death is a flag."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.policy_channel import ChannelTimings, PolicyChannel, PolicyClient
from policy.actor import PolicyPublisher
from policy.board import Introduction, Publication, initial_publication
from policy.choice import parse_choice
from policy.stats import Occupancy, StatsWindow
from policy.table import UNBOUNDED_BATCH_SIZE, SpeculationTable
from tests.policy.grids import grid, window

QUICK = ChannelTimings(report_s=0.002, first_pause_s=0.001, longest_pause_s=0.004, answer_s=30.0)


INTRODUCTION = Introduction("k", "a machine", max_batch=8, max_draft_len=4, calibration=grid())


class ActorDied(Exception):
    pass


class MortalActor:
    """A policy actor that fails pending and later calls once it is killed."""

    def __init__(self, configured: str = "off") -> None:
        self.actor = PolicyPublisher(configured, max_draft_len=8)
        self.calls: list[str] = []
        self.windows: list[StatsWindow] = []
        self.introductions: list[Introduction] = []
        self._death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.subscribed = asyncio.Event()

    def kill(self) -> None:
        self._death.set_exception(ActorDied())
        self._death.exception()

    async def introduce(self, replica_id: str, said: Introduction) -> None:
        self._check_alive()
        self.calls.append("introduce")
        self.introductions.append(said)
        await self.actor.introduce(replica_id, said)

    async def newer_than(self, replica_id: str, held: Publication) -> Publication | None:
        self.calls.append("newer_than")
        call = asyncio.create_task(self.actor.newer_than(replica_id, held))
        await asyncio.sleep(0)
        self.subscribed.set()
        calls: set[asyncio.Future[Any]] = {call, self._death}
        try:
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            self._check_alive()
            return await call
        finally:
            call.cancel()

    async def observe(self, replica_id: str, window: StatsWindow) -> dict[str, Any] | None:
        self._check_alive()
        self.windows.append(window)
        return await self.actor.observe(replica_id, window)

    async def note_stage(self, replica_id: str, stage: str) -> None:
        self._check_alive()
        await self.actor.note_stage(replica_id, stage)

    def _check_alive(self) -> None:
        if self._death.done():
            raise ActorDied


@dataclass
class Replica:
    """A replica's engine, reduced to its table and counts, and its channel."""

    actor: MortalActor | None
    in_force: list[SpeculationTable] = field(default_factory=list)
    window: StatsWindow = field(default_factory=StatsWindow)
    num_lookups: int = 0
    num_refusals: int = 0
    num_drained: int = 0
    occupancy: Occupancy = field(default_factory=Occupancy)
    replica_id: str = "r"
    introduction: Introduction | None = None
    kept: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.channel = PolicyChannel(
            self.replica_id,
            initial_publication(parse_choice("off")),
            self._connect,
            self._apply,
            self._drain,
            QUICK,
            introduction=self.introduction,
            keep=self.kept.append,
        )

    async def _connect(self) -> PolicyClient:
        self.num_lookups += 1
        if self.actor is None:
            raise ValueError("no actor of that name")
        return self.actor

    def _apply(self, table: SpeculationTable) -> None:
        if self.num_refusals:
            self.num_refusals -= 1
            raise RuntimeError("engine busy")
        self.in_force.append(table)

    def _drain(self) -> StatsWindow:
        window, self.window = self.window, StatsWindow()
        window.table_version = self.version
        window.occupancy = self.occupancy
        self.num_drained += 1
        return window

    @property
    def version(self) -> int:
        return self.in_force[-1].version if self.in_force else 0

    def step(self) -> None:
        self.window.steps += 1
        self.window.record_rounds(num_drafted=2, num_accepted=1, num_emitted=2)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # any condition, not only one that has an event
            await asyncio.sleep(0.001)


async def told(actor: MortalActor, key: str, value: object, replica_id: str = "r") -> None:
    """Return once the actor's record of the replica says so."""
    async with asyncio.timeout(20):
        while True:
            replicas = (await actor.actor.describe())["replicas"]
            if any(r["replica_id"] == replica_id and r[key] == value for r in replicas):
                return
            await asyncio.sleep(0.001)


async def accepted(actor: MortalActor) -> str:
    """What the actor knows of acceptance, in words."""
    text: str = (await actor.actor.explain(1))["text"]
    return text.partition("acceptance by position ")[2]


def test_a_new_table_is_applied_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cluster.policy_channel")

    async def scenario() -> None:
        actor = MortalActor()
        replica = Replica(actor)
        replica.channel.start()
        await until(lambda: replica.version == 1)
        await actor.actor.set_policy({"fixed": 3})
        await until(lambda: replica.version == 2)
        assert replica.in_force[-1].draft_len(5) == 3
        await told(actor, "version_in_force", 2)
        await replica.channel.close()

    asyncio.run(scenario())
    logged = vars(caplog.records[-1])
    assert (logged["event"], logged["version"], logged["mode"]) == ("table", 2, "fixed")
    assert logged["lengths"] == {UNBOUNDED_BATCH_SIZE: 3}
    assert logged["why"] == "set by hand: fixed"


def test_counts_arrive_once() -> None:
    async def scenario() -> None:
        actor = MortalActor()
        replica = Replica(actor)
        replica.channel.start()
        for steps in range(1, 6):
            replica.step()
            await told(actor, "steps", steps)
        await told(actor, "accepted_tokens", 5)
        await replica.channel.close()

    asyncio.run(scenario())


def test_a_replica_that_comes_to_rest_says_so_once_and_is_silent() -> None:
    """Else what it did last would be told of it for as long as it rests."""

    async def scenario() -> None:
        actor = MortalActor()
        replica = Replica(actor)
        replica.channel.start()
        replica.occupancy = Occupancy(running=1, decoding=1)
        replica.step()
        await told(actor, "steps", 1)
        await told(actor, "tokens_per_s", 0.0)
        await told(actor, "running", 1)
        replica.occupancy = Occupancy(waiting=2)
        await told(actor, "waiting", 2)
        reports, looks = len(actor.windows), replica.num_drained
        await until(lambda: replica.num_drained > looks + 5)
        assert len(actor.windows) == reports
        assert [window.steps for window in actor.windows if window.wall_seconds] == [1]
        await replica.channel.close()

    asyncio.run(scenario())


def test_death_keeps_the_table_and_the_next_actor_recovers_it() -> None:
    async def scenario() -> None:
        first = MortalActor()
        replica = Replica(first)
        replica.channel.start()
        await first.actor.set_policy({"fixed": 5})
        await until(lambda: replica.version == 2)
        first.kill()
        replica.actor = None
        lookups = replica.num_lookups
        await until(lambda: replica.num_lookups > lookups + 3)
        assert replica.version == 2
        assert not replica.channel.status().connected
        assert replica.channel.status().heard_s_ago is not None

        replica.step()
        replica.actor = second = MortalActor()
        await told(second, "steps", 1)
        await second.subscribed.wait()
        assert (await second.actor.describe())["table"]["source"] == "hand"
        await told(second, "version_in_force", 2)
        await second.actor.set_policy("off")
        await until(lambda: replica.version == 3)
        assert [table.version for table in replica.in_force] == sorted(
            {table.version for table in replica.in_force}
        )
        assert replica.channel.status().connected
        await replica.channel.close()

    asyncio.run(scenario())


def test_it_never_stops_looking() -> None:
    async def scenario() -> None:
        replica = Replica(None)
        replica.channel.start()
        await until(lambda: replica.num_lookups > 20)
        status = replica.channel.status()
        assert (status.connected, status.heard_s_ago) == (False, None)
        replica.actor = MortalActor()
        await until(lambda: replica.version == 1)
        await replica.channel.close()

    asyncio.run(scenario())


def test_a_table_that_could_not_be_applied_is_tried_again() -> None:
    async def scenario() -> None:
        replica = Replica(MortalActor(), num_refusals=2)
        replica.channel.start()
        await until(lambda: replica.version == 1)
        assert replica.num_refusals == 0
        await replica.channel.close()

    asyncio.run(scenario())


def test_the_stage_reaches_the_actor_though_it_was_set_before_it_lived() -> None:
    async def scenario() -> None:
        replica = Replica(None)
        replica.channel.set_stage("loading weights")
        replica.channel.start()
        actor = replica.actor = MortalActor()
        await told(actor, "stage", "loading weights")
        replica.channel.set_stage("ready")
        await told(actor, "stage", "ready")
        await replica.channel.close()

    asyncio.run(scenario())


def test_a_new_replica_takes_the_table_that_an_old_one_brought_back() -> None:
    async def scenario() -> None:
        first = MortalActor()
        old = Replica(first, replica_id="old")
        old.channel.start()
        await first.actor.set_policy({"fixed": 5})
        await until(lambda: old.version == 2)
        first.kill()
        second = MortalActor()
        new = Replica(second, replica_id="new")
        new.channel.start()
        await until(lambda: new.version == 1)
        old.actor = second
        await until(lambda: new.version == 2)
        assert new.in_force[-1].draft_len(1) == 5
        await old.channel.close()
        await new.channel.close()

    asyncio.run(scenario())


def test_a_replica_introduces_itself_on_each_connection_before_it_asks_for_tables() -> None:
    async def scenario() -> None:
        first = MortalActor("adaptive")
        replica = Replica(first, introduction=INTRODUCTION)
        replica.channel.start()
        await until(lambda: replica.version > 0)
        assert replica.in_force[0].max_draft_len > 0, "the first table knows the calibration"
        first.kill()
        replica.actor = second = MortalActor("adaptive")
        await second.subscribed.wait()
        for actor in (first, second):
            assert actor.calls[0] == "introduce"
            assert actor.calls.count("introduce") == 1
            assert actor.introductions[0].calibration == INTRODUCTION.calibration
        await replica.channel.close()

    asyncio.run(scenario())


def test_one_without_an_introduction_asks_all_the_same() -> None:
    async def scenario() -> None:
        replica = Replica(actor := MortalActor())
        replica.channel.start()
        await until(lambda: replica.version == 1)
        assert set(actor.calls) == {"newer_than"}
        await replica.channel.close()

    asyncio.run(scenario())


def test_an_actor_that_dies_at_the_introduction_is_looked_for_again() -> None:
    async def scenario() -> None:
        replica = Replica(dead := MortalActor(), introduction=INTRODUCTION)
        dead.kill()
        replica.channel.start()
        await until(lambda: replica.num_lookups > 3)
        assert dead.calls == []
        assert not replica.channel.status().connected
        replica.actor = MortalActor()
        await until(lambda: replica.version == 1)
        await replica.channel.close()

    asyncio.run(scenario())


def test_what_was_learned_is_kept_and_told_to_the_next_actor() -> None:
    async def scenario() -> None:
        first = MortalActor("adaptive")
        replica = Replica(first, introduction=INTRODUCTION)
        # Counted before it ever connects, so that they are in the first report.
        replica.window = window(0.9, batch_size=1, steps=400)
        replica.channel.start()
        await until(lambda: len(replica.kept) > 0)
        await told(first, "steps", 400)
        known = await accepted(first)
        assert known.endswith("from 400 rounds")
        first.kill()

        replica.actor = second = MortalActor("adaptive")
        await second.subscribed.wait()
        assert second.introductions[0].learned == replica.kept[-1]
        assert await accepted(second) == known
        await replica.channel.close()

    asyncio.run(scenario())
