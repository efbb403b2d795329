"""From reports to tables, budgets and reasons."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.draft_record import DraftRecord
from policy.learner import MIN_GAIN, Decided, Learner
from policy.stats import StatsWindow
from policy.table import Budget, Share, SpeculationTable
from tests.policy.grids import grid, window

MAX_BATCH, MAX_LEN = 12, 4
NO_TABLE = SpeculationTable(1, ())


def learned(*windows: StatsWindow, calibrated: bool = True) -> Learner:
    learner = Learner(max_batch=MAX_BATCH, max_draft_len=MAX_LEN)
    if calibrated:
        learner.calibrate(grid())
    for one in windows:
        learner.observe(one, 1)
    return learner


def first_of(learner: Learner) -> Decided:
    decided = learner.decide(NO_TABLE)
    assert decided is not None
    return decided


def table_of(decided: Decided) -> SpeculationTable:
    return SpeculationTable(2, decided.rungs, decided.budget)


def test_nothing_is_decided_before_something_was_measured() -> None:
    learner = learned(window(0.9), calibrated=False)
    assert learner.decide(NO_TABLE) is None
    assert learner.choices(1) is None
    assert "no cost was measured yet" in learner.explain(4, NO_TABLE)


def test_the_first_table_comes_from_the_prior() -> None:
    decided = first_of(learned())
    assert decided.rungs
    assert decided.why == "first table of measured cost; nothing was drafted yet"


def test_better_traffic_gives_longer_drafts() -> None:
    bad, good = (table_of(first_of(learned(window(chance)))) for chance in (0.02, 0.9))
    assert all(bad.draft_len(size) <= good.draft_len(size) for size in range(1, MAX_BATCH + 1))
    assert bad.draft_len(1) == 0
    assert good.draft_len(1) == MAX_LEN


def test_a_table_that_is_good_stays() -> None:
    learner = learned(window(0.6))
    table = table_of(first_of(learner))
    assert learner.decide(table) is None
    learner.observe(window(0.61, seed=1), 1)
    assert learner.decide(table) is None


def test_a_change_of_traffic_is_told_with_its_gain() -> None:
    learner = learned(window(0.9))
    table = table_of(first_of(learner))
    for seed in range(3):
        learner.observe(window(0.02, seed=seed), 1)
    changed = learner.decide(table)
    assert changed is not None
    assert changed.rungs != table.rungs
    assert "-> 0 (+" in changed.why
    assert "first token kept 0." in changed.why


def test_it_follows_the_traffic() -> None:
    """At batch size 1, a report every ten steps: drafts get longer within a half-life, and shorter
    within a few, since half of what was seen has to fade first."""
    learner, table = learned(), NO_TABLE
    for chance, steps, expected in ((0.02, 100, 0), (0.9, 100, MAX_LEN), (0.02, 600, 0)):
        for seed in range(steps // 10):
            learner.observe(window(chance, batch_size=1, steps=10, seed=seed), 1)
            decided = learner.decide(table)
            table = table if decided is None else table_of(decided)
        assert table.draft_len(1) == expected


def test_noise_does_not_flap() -> None:
    """Reports of 20 drafts each, that are far apart by chance."""
    learner, table = learned(window(0.6, batch_size=1, steps=300)), NO_TABLE
    decided = learner.decide(table)
    assert decided is not None
    table, changes = table_of(decided), 0
    for seed in range(100):
        learner.observe(window(0.6, batch_size=1, steps=20, seed=seed), 1)
        decided = learner.decide(table)
        if decided is not None:
            changes += decided.rungs != table.rungs
            table = table_of(decided)
    assert changes <= 2


def test_of_many_replicas_each_counts_for_less() -> None:
    """The half-life is in steps of one replica."""
    before = window(0.9, batch_size=1, steps=200)
    after = window(0.1, batch_size=1, steps=100)
    shares = []
    for num_replicas in (1, 50):
        learner = learned()
        learner.observe(before, num_replicas)
        learner.observe(after, num_replicas)
        found = learner.choices(1)
        assert found is not None
        shares.append(found[1].survival[0])
    assert shares[0] < shares[1] - 0.05


def test_probes_count_where_nothing_else_drafts() -> None:
    """Steps without drafts do not make what is known fade."""
    learner = learned(window(0.9))
    learner.observe(StatsWindow(steps=100_000, steps_without_draft=100_000), 1)
    found = learner.choices(4)
    assert found is not None
    assert found[1].survival[0] == pytest.approx(0.9, abs=0.05)
    probed = window(0.02, steps=300)
    probed.probes = probed.steps
    learner.observe(probed, 1)
    found = learner.choices(4)
    assert found is not None
    assert found[1].survival[0] < 0.2


def test_a_budget_moves_without_the_lengths() -> None:
    learner = learned(window(0.9, seed=1))
    decided = first_of(learner)
    budget = decided.budget
    other = replace(budget.modelled, acceptance=budget.modelled.acceptance - 0.2)
    off = SpeculationTable(2, decided.rungs, replace(budget, modelled=other))
    moved = learner.decide(off)
    assert moved is not None
    assert moved.rungs == decided.rungs
    assert "who gets draft tokens" in moved.why


def test_rungs_alike_are_made_one() -> None:
    decided = first_of(learned())
    largest, length = decided.rungs[0]
    assert largest > 1
    share = decided.budget.modelled
    share = Share((share.lengths[0], *share.lengths), (share.break_even[0], *share.break_even), 0.4)
    split = SpeculationTable(2, ((1, length), *decided.rungs), Budget(share, share))
    again = learned().decide(split)
    assert again is not None
    assert (again.rungs, again.why) == (decided.rungs, "the same lengths in fewer rungs")


@settings(max_examples=25, deadline=None)
@given(st.floats(0.0, 0.97), st.integers(1, 12))
def test_a_sequence_of_average_record_gets_the_length_of_its_rung(
    chance: float, batch_size: int
) -> None:
    decided = first_of(learned(window(chance, batch_size=batch_size, steps=60)))
    table, budget = table_of(decided), decided.budget.modelled
    average = DraftRecord(tried=40.0, kept=40.0 * budget.acceptance)
    good = DraftRecord(tried=40.0, kept=40.0 * (0.2 + 0.8 * budget.acceptance))
    bad = DraftRecord(tried=40.0, kept=20.0 * budget.acceptance)
    for size in range(1, MAX_BATCH + 1):
        length, rung = table.draft_len(size), table.rung(size)
        if rung is None:
            assert length == 0
            continue
        least = budget.break_even[rung]
        for record in (DraftRecord(), average):
            assert record.draft_len(budget.acceptance, least, MAX_LEN) == length
        assert good.draft_len(budget.acceptance, least, MAX_LEN) >= length
        assert bad.draft_len(budget.acceptance, least, MAX_LEN) <= length


def test_explanations_are_of_the_table_that_is_asked_about() -> None:
    learner = learned(window(0.6))
    told = learner.explain(2, SpeculationTable(1, ((4, 1),)))
    assert told.startswith("at batch 2 length 1: ")
    assert "length 0 would give 1.00" in told
    too_long = learner.explain(2, SpeculationTable(1, ((4, 9),)))
    assert too_long.startswith(f"at batch 2 length {MAX_LEN}: ")


def test_nothing_that_was_learned_is_lost_in_json() -> None:
    learner = learned(window(0.8), window(0.3, batch_size=8), window(0.7, draft_len=2))
    again = Learner.from_json(json.loads(json.dumps(learner.as_json())))
    assert again.as_json() == learner.as_json()
    assert again.steps == learner.steps == 300
    assert first_of(again) == first_of(learner)
    for later in (learner, again):
        later.observe(window(0.1), 1)
    assert first_of(again) == first_of(learner)


def test_a_learner_without_a_calibration_survives_too() -> None:
    learner = learned(window(0.8), calibrated=False)
    again = Learner.from_json(json.loads(json.dumps(learner.as_json())))
    again.calibrate(grid())
    learner.calibrate(grid())
    assert first_of(again) == first_of(learner)


def state(**changed: object) -> dict[str, Any]:
    return {**learned(window(0.5)).as_json(), **changed}


@pytest.mark.parametrize(
    "value",
    [
        *(None, 3, [], "x", {}, state(cost=3), state(acceptance=None), state(cost=[])),
        *(
            state(**{name: number})
            for name in ("max_batch", "max_draft_len", "steps", "context")
            for number in (None, "x", -1, math.nan, math.inf)
        ),
        *(state(max_batch=0), state(max_draft_len=17), state(context=10**400)),
    ],
)
def test_what_is_no_state_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError):
        Learner.from_json(value)


def test_a_table_in_force_may_be_a_little_worse_than_the_best() -> None:
    learner = learned(window(0.6))
    for rungs in (((12, 1),), ((12, 2),), ((12, 4),), ((2, 4), (12, 1))):
        share = Share(tuple(length for _, length in rungs), (0.5,) * len(rungs), 0.6)
        table = SpeculationTable(2, rungs, Budget(share, share))
        decided = learner.decide(table)
        after = table if decided is None else table_of(decided)
        for size in range(1, MAX_BATCH + 1):
            found = learner.choices(size)
            assert found is not None
            rates = [choice.tokens_per_second for choice in found[0]]
            assert rates[after.draft_len(size)] * (1 + MIN_GAIN) >= max(rates)
