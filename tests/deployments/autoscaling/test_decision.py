"""The number of replicas, on a virtual clock."""

import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.autoscaling.decision import (
    Memory,
    Observation,
    SeenReplica,
    Targets,
    decide,
)
from deployments.autoscaling.load import ReplicaLoad
from tests.deployments.autoscaling.fleet import SLOTS, TABLE, TARGETS, Fleet

BUSY = ReplicaLoad(
    num_requests=12,
    num_running=12,
    new_tokens=1200,
    new_tokens_per_s=200,
    kv_use=0.2,
    max_num_seqs=SLOTS,
    seconds_per_token=TABLE,
)
IDLE = ReplicaLoad(max_num_seqs=SLOTS, seconds_per_token=TABLE)


def changes(targets: list[int]) -> int:
    return sum(before != after for before, after in pairwise(targets))


def number_of(
    *loads: ReplicaLoad | None, target: int | None = None, targets: Targets = TARGETS
) -> int:
    """Decided when the same has been seen for long."""
    memory, number = Memory(), len(loads) if target is None else target
    for now_s in range(0, 400, 2):
        replicas = [SeenReplica(load) for load in loads]
        verdict = decide(Observation(float(now_s), number, replicas), targets, memory)
        memory = verdict.memory
        if verdict.num_replicas != number:
            return verdict.num_replicas
    return number


def test_a_step_up_is_met_within_seconds_and_in_one_go() -> None:
    fleet = Fleet()
    fleet.run(60, 0.4)
    decided = fleet.run(20, 2.5)
    assert decided[-1] in (3, 4)
    assert decided == sorted(decided)


def test_a_step_down_waits_and_then_happens() -> None:
    fleet = Fleet(first=4)
    fleet.run(60, 3.0)
    delay_s = TARGETS.downscale_delay_s
    assert set(fleet.run(delay_s - 5, 0.4)) == {4}
    assert fleet.run(300, 0.4)[-1] == 1


@pytest.mark.parametrize("load", [0.8, 0.9, 1.4, 1.8, 2.7])
def test_noise_at_a_threshold_does_not_flap(load: float) -> None:
    fleet = Fleet(first=math.ceil(load))
    fleet.run(60, load)
    decided = fleet.run(1800, lambda s: load * (1 + 0.1 * math.sin(s / 7)))
    assert changes(decided) <= 1


def test_a_burst_that_is_soon_worked_off_starts_nothing() -> None:
    fleet = Fleet()
    fleet.run(60, 0.2)
    fleet.burst(20)
    assert set(fleet.run(300, 0.2)) == {1}


def test_bursts_that_come_again_and_again_change_little() -> None:
    fleet = Fleet()
    decided: list[int] = []
    for _ in range(20):
        fleet.burst(80)
        decided += fleet.run(60, 0.3)
    assert changes(decided) <= 2


@pytest.mark.parametrize("load", [1.6, 2.7, 4.2])
def test_replicas_that_start_slowly_are_not_overshot(load: float) -> None:
    fleet = Fleet(start_s=30.0)
    fleet.run(60, 0.5)
    most = max(fleet.run(600, load))
    # One more than what comes in needs, for what piled up while they started.
    assert most <= math.ceil(load / 0.9) + 1
    assert len(fleet.running) >= load


def test_streams_that_are_long_count_though_none_comes() -> None:
    """64 at once, and nothing after them: work that one replica would be at for minutes."""
    endless = replace(
        BUSY, num_requests=64, num_running=32, new_tokens=64 * 2000, new_tokens_per_s=0.0
    )
    assert number_of(endless) >= 3


def test_the_target_per_token_decides_the_batch() -> None:
    loads = (replace(BUSY, new_tokens_per_s=280.0),)
    strict = replace(TARGETS, target_tpot_ms=25.0)
    lax = replace(TARGETS, target_tpot_ms=90.0)
    assert number_of(*loads, targets=lax) == 1
    assert number_of(*loads, targets=strict) > 1


def test_a_target_that_nobody_can_meet_counts_a_sequence_at_a_time() -> None:
    loads = (replace(BUSY, new_tokens_per_s=100.0),)
    assert number_of(*loads, targets=replace(TARGETS, target_tpot_ms=1.0)) == 3


def test_full_kv_makes_the_batch_smaller() -> None:
    loads = (replace(BUSY, num_running=4, kv_use=0.95, new_tokens_per_s=200.0),)
    assert number_of(replace(loads[0], kv_use=0.1)) == 1
    assert number_of(*loads) == 2


def test_prompts_beyond_the_target_of_the_first_token_count() -> None:
    prompts = replace(IDLE, num_requests=8, prompt_tokens=400_000, seconds_per_prompt_token=0.0005)
    assert number_of(prompts) > 1
    patient = replace(TARGETS, target_ttft_ms=300_000.0)
    assert number_of(prompts, targets=patient) == 1


def test_one_is_given_up_only_where_the_others_have_room() -> None:
    """Of one replica at the stricter target, 288 tokens a second would be all."""
    light = replace(IDLE, num_requests=2.0, num_running=2.0, new_tokens=200.0)
    full, half_full = (replace(light, new_tokens_per_s=each) for each in (115.0, 93.0))
    assert number_of(full, full) == 2
    assert number_of(half_full, half_full) == 1


def test_missing_stats_are_not_taken_for_idleness() -> None:
    assert number_of(None, None) == 2
    assert number_of(IDLE, None) == 2
    assert number_of(IDLE, IDLE) == 1
    unpaced = replace(BUSY, seconds_per_token=(), new_tokens_per_s=1.0)
    assert number_of(unpaced, IDLE) == 2


def test_stale_stats_are_not_taken_for_idleness() -> None:
    fleet = Fleet(first=2)
    fleet.run(60, 0.1)
    for replica in fleet.replicas:
        replica.is_silent = True
    fleet.run(40, 0.1)
    assert set(fleet.run(600, 0.1)) == {2}


def test_what_a_silent_replica_said_last_still_counts_when_more_are_needed() -> None:
    stale = SeenReplica(replace(BUSY, new_tokens_per_s=280.0), age_s=100.0)
    seen = Observation(0.0, 1, [stale])
    memory = decide(seen, TARGETS, Memory()).memory
    assert decide(replace(seen, now_s=10.0), TARGETS, memory).num_replicas == 1
    heavy = replace(BUSY, new_tokens_per_s=600.0)
    seen = Observation(0.0, 1, [SeenReplica(heavy, age_s=100.0)])
    memory = decide(seen, TARGETS, Memory()).memory
    assert decide(replace(seen, now_s=10.0), TARGETS, memory).num_replicas == 3


def test_a_restart_of_the_controller_lowers_nothing_at_once() -> None:
    fleet = Fleet(first=3)
    fleet.run(60, 2.4)
    fleet.run(TARGETS.downscale_delay_s - 20, 0.3)
    fleet.forget()
    assert set(fleet.run(TARGETS.downscale_delay_s - 5, 0.3)) == {3}
    assert fleet.run(60, 0.3)[-1] == 1


def test_zero_only_when_nothing_is_left_and_back_again() -> None:
    fleet = Fleet(replace(TARGETS, min_replicas=0), start_s=10.0)
    assert set(fleet.run(TARGETS.downscale_delay_s + 30, 0.02)) == {1}
    assert fleet.run(TARGETS.downscale_delay_s + 60, 0.0)[-1] == 0
    assert set(fleet.run(60, 0.0)) == {0}
    fleet.burst(1)
    assert set(fleet.run(60, 0.0)) == {1}
    assert not fleet.queued


def test_replicas_that_never_start_are_given_up_when_nobody_needs_them() -> None:
    assert number_of(IDLE, target=3) == 1


def test_the_bounds_hold() -> None:
    huge = replace(BUSY, new_tokens_per_s=1e6)
    assert number_of(huge) == TARGETS.max_replicas
    assert number_of(IDLE, IDLE, IDLE, targets=replace(TARGETS, min_replicas=2)) == 2


def test_a_replica_that_has_just_started_counts_for_nothing_yet() -> None:
    busy = replace(BUSY, new_tokens_per_s=500.0)  # 1.6 replicas' worth
    assert number_of(busy, None) == 2


def test_the_memory_stays_small() -> None:
    fleet = Fleet(first=4)
    fleet.run(600, lambda s: 2.0 - s / 400)
    assert len(fleet.memory.wanted) <= TARGETS.max_replicas


NUMBERS = st.floats(min_value=0, max_value=1e300)
NAMES = (
    "num_requests",
    "num_running",
    "prompt_tokens",
    "new_tokens",
    "prompt_tokens_per_s",
    "new_tokens_per_s",
    "recent_prompt_tokens_per_s",
    "recent_new_tokens_per_s",
    "kv_use",
    "seconds_per_prompt_token",
)
ANY_LOAD = st.builds(
    ReplicaLoad,
    **dict.fromkeys(NAMES, NUMBERS),
    max_num_seqs=st.floats(min_value=1, max_value=1e300),
    seconds_per_token=st.sampled_from([(), TABLE, ((1, 1e-300),), ((7, 1e300),)]),
)


@given(
    loads=st.lists(st.none() | ANY_LOAD, max_size=4),
    target=st.integers(-3, 40),
    queued=st.floats(allow_nan=True, allow_infinity=True),
    now_s=st.floats(min_value=-1e18, max_value=1e18),
    memory=st.builds(
        Memory,
        st.none() | st.floats(-1e18, 1e18),
        st.none() | st.floats(-1e18, 1e18),
        st.integers(0, 9),
        st.none() | st.floats(-1e18, 1e18),
        st.lists(st.tuples(st.floats(-1e9, 1e9), st.integers(0, 9)), max_size=3).map(tuple),
    ),
)
def test_it_never_raises_and_keeps_the_bounds(
    loads: list[ReplicaLoad | None], target: int, queued: float, now_s: float, memory: Memory
) -> None:
    seen = Observation(now_s, target, [SeenReplica(load) for load in loads], queued)
    verdict = decide(seen, TARGETS, memory)
    assert TARGETS.min_replicas <= verdict.num_replicas <= TARGETS.max_replicas


def test_the_reason_has_the_numbers() -> None:
    verdict = decide(Observation(0.0, 1, [SeenReplica(BUSY)]), TARGETS, Memory())
    assert verdict.reason == (
        "1: 0.69 replicas' work comes in, 12 requests; best batch 12 at 42 ms a token"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"num_requests": -1.0},
        {"kv_use": math.nan},
        {"max_num_seqs": 0.0},
        {"seconds_per_token": ((4, 0.1), (4, 0.2))},
        {"seconds_per_token": ((4, 0.0),)},
    ],
)
def test_a_load_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(BUSY, **change)


def test_a_load_travels_as_numbers_by_name() -> None:
    assert ReplicaLoad.from_stats(BUSY.as_stats() | {"running_requests": 3.0}) == BUSY
    stats = BUSY.as_stats()
    del stats["kv_use"]
    with pytest.raises(ValueError, match="stats lack kv_use"):
        ReplicaLoad.from_stats(stats)


def test_the_table_is_read_between_and_beyond_its_points() -> None:
    assert BUSY.seconds_at(0.5) == BUSY.seconds_at(1) == 0.020
    assert BUSY.seconds_at(12) == pytest.approx(0.042)
    assert BUSY.seconds_at(64) == pytest.approx(0.164)
    for limit_s in (0.021, 0.034, 0.05, 0.0666):
        assert BUSY.seconds_at(BUSY.largest_batch(limit_s)) == pytest.approx(limit_s)
    assert BUSY.largest_batch(0.001) == 1
    assert BUSY.largest_batch(9.0) == SLOTS


def test_the_controller_needs_no_torch() -> None:
    code = "import sys, deployments.autoscaling.decision; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
