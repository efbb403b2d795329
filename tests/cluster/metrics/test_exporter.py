"""The state of a replica, looked at now and then."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.metrics import definitions as defined
from cluster.metrics import exporter as module
from cluster.metrics.exporter import MetricsExporter, Sources
from cluster.policy_channel import ChannelStatus
from engine.core import EngineStatus
from policy.board import initial_publication
from policy.choice import parse_choice
from policy.table import SpeculationTable
from tests.cluster.metrics.fake_instruments import FakeInstruments

NOW_S = 1_000_000.0


class Replica:
    """What an exporter looks at, to be changed at will."""

    def __init__(self, max_num_seqs: int = 6) -> None:
        self.status = EngineStatus(
            num_running=5,
            num_waiting=2,
            num_decoding=3,
            num_blocks=64,
            num_free_blocks=24,
            table_version=7,
            draft_len=4,
            steps=17,
            num_cached_blocks=9,
            prefix_cache_queries=100,
            prefix_cache_hits=40,
            num_waiting_tokens=300,
            num_prompt_tokens=110,
            num_preemptions=1,
        )
        held = initial_publication(parse_choice("off"))
        table = SpeculationTable(7, ((2, 4), (4, 1)))
        self.channel = ChannelStatus(
            replace(held, table=table, set_at_unix_s=NOW_S - 60), True, 3.0
        )
        self.calibrated_at_unix_s: float | None = NOW_S - 3600
        self.speedups: Callable[[int], float | None] = lambda batch_size: 1.0 + 1.0 / batch_size
        self.asked: list[int] = []
        self.told = FakeInstruments()
        self.exporter = MetricsExporter(
            self.told,
            Sources(
                engine=lambda: self.status,
                channel=lambda: self.channel,
                speedup=self._speedup,
                calibrated_at_unix_s=lambda: self.calibrated_at_unix_s,
            ),
            max_num_seqs,
            unix_s=lambda: NOW_S,
        )

    def _speedup(self, batch_size: int, table: SpeculationTable) -> float | None:
        assert table is self.channel.held.table
        self.asked.append(batch_size)
        return self.speedups(batch_size)


def test_the_state_of_the_engine() -> None:
    replica = Replica()
    replica.exporter.look()
    told = replica.told
    assert told.value(defined.NUM_REQUESTS_RUNNING) == 5
    assert told.value(defined.NUM_REQUESTS_WAITING) == 2
    assert told.value(defined.WAITING_TOKENS) == 300
    assert told.value(defined.BATCH_SIZE) == 3
    assert told.value(defined.KV_BLOCKS) == 64
    assert told.value(defined.KV_BLOCKS_USED) == 40
    assert told.value(defined.KV_BLOCKS_CACHED) == 9
    assert told.value(defined.DRAFT_LENGTH_IN_FORCE) == 4
    assert told.value(defined.TABLE_VERSION) == 7


def test_counts_of_the_engine_are_told_once() -> None:
    replica = Replica()
    replica.exporter.look()
    replica.exporter.look()
    replica.status = replace(
        replica.status, num_prompt_tokens=130, prefix_cache_hits=41, num_preemptions=4
    )
    replica.exporter.look()
    assert replica.told.total(defined.PROMPT_TOKENS) == 130
    assert replica.told.total(defined.PREFIX_CACHE_QUERIES) == 100
    assert replica.told.total(defined.PREFIX_CACHE_HITS) == 41
    assert replica.told.total(defined.NUM_PREEMPTIONS) == 4


def test_the_table_in_force_and_what_it_gains_by_batch_size() -> None:
    replica = Replica()
    replica.exporter.look()
    told = replica.told
    assert told.by_label(defined.DRAFT_LENGTH) == {"1": 4, "2": 4, "4": 1, "6": 0}
    assert told.by_label(defined.ESTIMATED_SPEEDUP)["4"] == 1.25
    assert told.value(defined.ESTIMATED_SPEEDUP_IN_FORCE) == pytest.approx(4 / 3)
    assert told.value(defined.TABLE_AGE) == 60
    assert told.value(defined.POLICY_SILENCE) == 3
    assert told.value(defined.CALIBRATION_AGE) == 3600


def test_what_is_not_known_is_not_told() -> None:
    replica = Replica()
    held = initial_publication(parse_choice("off"))
    replica.channel = ChannelStatus(held, connected=False, heard_s_ago=None)
    replica.calibrated_at_unix_s = None
    replica.speedups = lambda batch_size: None
    replica.exporter.look()
    for metric in (
        defined.TABLE_AGE,
        defined.POLICY_SILENCE,
        defined.CALIBRATION_AGE,
        defined.ESTIMATED_SPEEDUP_IN_FORCE,
    ):
        assert replica.told.value(metric) is None
    assert replica.told.by_label(defined.ESTIMATED_SPEEDUP) == {}
    assert replica.told.by_label(defined.DRAFT_LENGTH) == {"1": 0, "2": 0, "4": 0, "6": 0}


def test_an_idle_engine_has_no_speedup_in_force() -> None:
    replica = Replica()
    replica.status = replace(replica.status, num_decoding=0)
    replica.exporter.look()
    assert replica.told.value(defined.ESTIMATED_SPEEDUP_IN_FORCE) is None
    assert replica.told.value(defined.BATCH_SIZE) == 0


def test_the_cost_model_is_asked_now_and_then_and_for_each_table() -> None:
    replica = Replica(max_num_seqs=1)
    replica.status = replace(replica.status, num_decoding=0)
    for _ in range(5):
        replica.exporter.look()
    assert replica.asked == [1]
    replica.exporter.look()
    assert replica.asked == [1, 1]
    table = SpeculationTable(8, ((1, 2),))
    replica.channel = replace(replica.channel, held=replace(replica.channel.held, table=table))
    replica.exporter.look()
    assert replica.asked == [1, 1, 1]


async def test_a_failure_is_told_once_and_the_looking_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PERIOD_S", 0.0)
    replica, looks, recovered = Replica(), 0, asyncio.Event()

    def speedup(batch_size: int) -> float:
        nonlocal looks
        looks += 1
        if looks <= 2:
            raise ValueError("no")
        recovered.set()
        return 1.0

    replica.speedups = speedup
    replica.exporter.start()
    async with asyncio.timeout(10):
        await recovered.wait()
    await replica.exporter.close()
    assert [record.message for record in caplog.records] == ["metrics are not exported"]
