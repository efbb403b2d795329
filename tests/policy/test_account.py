"""A table accounted for: every batch size in one stretch, and the numbers those of the decision."""

import json

import pytest

from policy.account import account
from policy.learner import Learner
from policy.table import SpeculationTable, fixed_rungs
from tests.policy.grids import convex, drafting, grid, window

MAX_BATCH = 16


@pytest.fixture
def learner() -> Learner:
    learner = Learner(max_batch=MAX_BATCH, max_draft_len=4)
    learner.calibrate(grid())
    learner.observe(window(0.8), 1)
    return learner


def test_without_a_measured_cost_lengths_are_told_alone() -> None:
    told = account(SpeculationTable(3, ((2, 4), (8, 1))), None)
    assert [(rung["first"], rung["last"], rung["draft_len"]) for rung in told["rungs"]] == [
        (1, 2, 4),
        (3, 8, 1),
        (9, None, 0),
    ]
    assert {rung["why"] for rung in told["rungs"]} == {"no cost was measured yet"}
    assert told["by_batch_size"] == []
    uncalibrated = account(SpeculationTable(3, ((2, 4),)), Learner(max_batch=2, max_draft_len=4))
    assert uncalibrated["rungs"][0]["at_last"] == {}
    assert uncalibrated["by_batch_size"] == []


def test_each_rung_tells_what_it_gains_over_none(learner: Learner) -> None:
    told = account(SpeculationTable(3, ((2, 4), (8, 1))), learner)
    first, second, rest = told["rungs"]
    assert first["at_first"]["batch_size"] == 1
    assert second["at_last"]["batch_size"] == 8
    assert (rest["first"], rest["last"], rest["at_last"]["batch_size"]) == (9, None, MAX_BATCH)
    for batch_size, draft_len, end in (
        (2, 4, first["at_last"]),
        (8, 1, second["at_last"]),
        (MAX_BATCH, 0, rest["at_last"]),
    ):
        seconds = convex(batch_size, draft_len) + drafting(batch_size, draft_len)
        assert end["seconds_per_token"] * end["tokens_per_round"] == pytest.approx(seconds, rel=0.1)
        without = convex(batch_size, 0)
        assert end["seconds_per_token_without"] == pytest.approx(without, rel=0.1)
        assert end["speedup"] == end["seconds_per_token_without"] / end["seconds_per_token"]
    assert first["at_last"]["speedup"] > 1.5
    assert rest["at_last"]["speedup"] == 1
    assert second["why"] == learner.explain(8, SpeculationTable(3, ((2, 4), (8, 1))))
    json.dumps(told)


def test_batch_sizes_are_those_that_a_replica_runs(learner: Learner) -> None:
    told = account(SpeculationTable(3, ((5, 4), (2 * MAX_BATCH, 1))), learner)
    assert [point["batch_size"] for point in told["by_batch_size"]] == [1, 2, 4, 5, 6, 8, 16]
    assert [point["draft_len"] for point in told["by_batch_size"]] == [4, 4, 4, 4, 1, 1, 1]
    assert len(told["rungs"]) == 2, "nothing runs above the last rung"


def test_a_fixed_length_is_one_stretch(learner: Learner) -> None:
    (rung,) = account(SpeculationTable(3, fixed_rungs(2)), learner)["rungs"]
    assert (rung["first"], rung["last"]) == (1, None)
    assert rung["at_last"]["batch_size"] == MAX_BATCH
    (nothing,) = account(SpeculationTable(3, ()), learner)["rungs"]
    assert (nothing["first"], nothing["last"], nothing["draft_len"]) == (1, None, 0)
