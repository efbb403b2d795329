"""Boards by kind, and a board's adaptive half: who measures, what is decided, what outlives it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from policy.board import (
    CALIBRATION_LEASE_S,
    DECIDE_EVERY_S,
    FORGET_REPLICA_AFTER_S,
    SNAPSHOT_EVERY_S,
    Introduction,
    Publication,
    initial_publication,
)
from policy.boards import PolicyBoards
from policy.choice import parse_choice
from policy.cost import Calibration
from policy.stats import StatsWindow
from tests.policy.grids import grid, window

CHEAP = grid()
DEAR = grid(lambda b, s: 0.01 * b * (s + 1))
"""On which drafting never pays."""


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def boards(configured: object = "adaptive", clock: Clock | None = None) -> PolicyBoards:
    return PolicyBoards(parse_choice(configured), 4, clock or Clock())


def kind(
    name: str = "fast",
    calibration: Calibration | None = None,
    learned: dict[str, Any] | None = None,
) -> Introduction:
    return Introduction(name, f"the {name} kind", 12, 4, calibration, learned)


def table(of: PolicyBoards, replica_id: str) -> Publication:
    found = of.newer_than(replica_id, 0)
    assert found is not None
    return found


def told(of: PolicyBoards, replica_id: str) -> dict[str, Any]:
    replicas = {one["replica_id"]: one for one in of.describe()["replicas"]}
    found: dict[str, Any] = replicas[replica_id]
    return found


def test_nothing_is_drafted_before_something_was_measured() -> None:
    several = boards()
    assert not several.introduce("a", kind())
    assert table(several, "a").table.rungs == ()
    assert several.explain(4)["text"] == "at batch 4 length 0: no cost was measured yet"


def test_a_calibration_gives_a_table_with_its_reason() -> None:
    several = boards()
    assert several.introduce("a", kind(calibration=CHEAP))
    published = table(several, "a")
    assert (published.mode, published.source) == ("adaptive", "measured")
    assert published.table.rungs
    assert published.table.budget is not None
    assert several.describe()["history"][-1]["why"].startswith("first table of measured cost")
    assert "tokens a round" in several.explain(1)["text"]


def test_a_second_introduction_with_nothing_new_changes_nothing() -> None:
    several = boards()
    several.introduce("a", kind(calibration=CHEAP))
    before = table(several, "a")
    assert not several.introduce("a", kind(calibration=CHEAP))
    assert not several.introduce("b", kind(calibration=DEAR)), "the first that was measured holds"
    assert table(several, "b") == before


def test_two_kinds_never_mix() -> None:
    several = boards()
    several.introduce("a", kind("fast", CHEAP))
    several.introduce("b", kind("slow", DEAR))
    fast, slow = table(several, "a").table, table(several, "b").table
    assert fast.draft_len(1) > 0
    assert slow.max_draft_len == 0
    several.observe("b", window(0.0, steps=1000))
    assert table(several, "a").table == fast
    text = several.explain(1)["text"].splitlines()
    assert [line.split(":")[0] for line in text] == ["the fast kind", "the slow kind"]
    explained = several.explain_table()["kinds"]
    assert [one["kind"] for one in explained] == ["the fast kind", "the slow kind"]
    assert [one["version"] for one in explained] == [fast.version, slow.version]
    assert explained[0]["by_batch_size"] != explained[1]["by_batch_size"]
    kinds = several.describe()["kinds"]
    assert [one["kind"] for one in kinds] == ["the fast kind", "the slow kind"]
    assert [one["table"]["version"] for one in kinds] == [fast.version, slow.version]
    assert (told(several, "a")["kind"], told(several, "b")["kind"]) == (
        "the fast kind",
        "the slow kind",
    )


def test_replicas_that_have_not_said_their_kind_are_told_beside_several_kinds() -> None:
    several = boards()
    several.of("new").note_stage("new", "loading weights")
    several.introduce("a", kind("fast", CHEAP))
    several.introduce("b", kind("slow", DEAR))
    assert told(several, "new")["stage"] == "loading weights"
    assert told(several, "new")["kind"] == "loading"


def test_a_replica_leaves_the_board_that_it_was_on() -> None:
    several = boards()
    several.subscribe("a", initial_publication(parse_choice("adaptive")))
    several.introduce("a", kind())
    several.introduce("a", kind("slow"))
    assert [one["replica_id"] for one in several.describe()["replicas"]] == ["a"]


def test_the_kind_with_most_replicas_is_shown_first() -> None:
    several = boards()
    several.introduce("a", kind("fast", CHEAP))
    for name in "bc":
        several.introduce(name, kind("slow", DEAR))
    assert several.describe()["table"]["rungs"] == []


def test_one_of_several_calibrates() -> None:
    clock = Clock()
    several = boards(clock=clock)
    names = [f"r{i}" for i in range(5)]
    assert [several.may_calibrate(name, kind()) for name in names] == [True, *[False] * 4]
    assert several.may_calibrate("r0", kind()), "it may ask again"
    assert several.may_calibrate("other", kind("slow")), "each kind has its own"
    for _ in range(5):
        clock.now_s += 0.9 * CALIBRATION_LEASE_S
        several.of("r0").note_stage("r0", "calibrating, 3 %")
        assert not several.may_calibrate("r1", kind()), "it tells that it is alive"


def test_when_it_falls_silent_another_calibrates() -> None:
    clock = Clock()
    several = boards(clock=clock)
    assert several.may_calibrate("r0", kind())
    clock.now_s += CALIBRATION_LEASE_S - 0.1
    assert not several.may_calibrate("r1", kind())
    clock.now_s += 0.2
    assert several.may_calibrate("r1", kind())
    several.of("r0").note_stage("r0", "calibrating, 9 %")
    assert not several.may_calibrate("r0", kind()), "too late"
    assert not several.may_calibrate("r2", kind())


def test_what_one_measured_serves_all() -> None:
    clock = Clock()
    several = boards(clock=clock)
    assert several.may_calibrate("r0", kind())
    assert not several.may_calibrate("r1", kind())
    assert several.introduce("r0", kind(calibration=CHEAP))
    assert table(several, "r1") == table(several, "r0")
    assert table(several, "r1").source == "measured"
    clock.now_s += 10 * CALIBRATION_LEASE_S
    assert not several.may_calibrate("r1", kind())
    assert not several.may_calibrate("r2", kind()), "also of those that come later"


def test_one_that_gave_up_leaves_it_to_another() -> None:
    several = boards()
    assert several.may_calibrate("r0", kind())
    several.introduce("r0", kind())
    assert several.may_calibrate("r1", kind())


def test_a_table_set_by_hand_holds_for_kinds_that_come_later() -> None:
    several = boards()
    several.introduce("a", kind("fast", CHEAP))
    several.set_by_hand(parse_choice({"fixed": 3}))
    several.introduce("b", kind("slow", DEAR))
    for name in "ab":
        assert table(several, name).table.draft_len(99) == 3
        assert table(several, name).source == "hand"
        assert not several.observe(name, window(0.0))
    assert "the policy is fixed, hand; " in several.explain(1)["text"]
    with pytest.raises(ValueError, match="at most 4, got 5"):
        several.set_by_hand(parse_choice({"fixed": 5}))


def test_adaptive_by_hand_goes_back_to_what_is_measured() -> None:
    several = boards("off")
    several.introduce("a", kind(calibration=CHEAP))
    assert table(several, "a").table.rungs == ()
    several.set_by_hand(parse_choice("adaptive"))
    assert table(several, "a").source == "measured"
    assert table(several, "a").table.rungs


def test_traffic_changes_the_table_at_most_once_in_a_while() -> None:
    clock = Clock()
    several = boards(clock=clock)
    several.introduce("a", kind(calibration=CHEAP))
    before = table(several, "a").table
    assert not several.observe("a", window(0.01, steps=500)), "decided just now"
    clock.now_s += DECIDE_EVERY_S
    assert several.observe("a", window(0.01, steps=500))
    after = table(several, "a").table
    assert after.version == before.version + 1
    assert after.draft_len(1) < before.draft_len(1)
    assert "->" in several.describe()["history"][-1]["why"]


def test_modes_but_adaptive_are_left_alone_and_learn_all_the_same() -> None:
    clock = Clock()
    several = boards({"fixed": 2}, clock)
    several.introduce("a", kind(calibration=CHEAP))
    for _ in range(3):
        clock.now_s += DECIDE_EVERY_S
        assert not several.observe("a", window(0.9))
    assert table(several, "a").table.version == 1
    assert "acceptance by position 0.8" in several.explain(4)["text"]
    assert "nothing drafted yet" not in several.explain(4)["text"]


def test_replicas_that_are_gone_do_not_slow_the_fading() -> None:
    """The half-life grows with the replicas that report."""
    clock = Clock()
    crowded, alone = boards(clock=clock), boards(clock=clock)
    for i in range(200):
        crowded.introduce(f"gone-{i}", kind(calibration=CHEAP))
    for several in (crowded, alone):
        several.introduce("a", kind(calibration=CHEAP))
    clock.now_s += FORGET_REPLICA_AFTER_S + 1
    for several in (crowded, alone):
        several.observe("a", StatsWindow())
        clock.now_s += DECIDE_EVERY_S
        several.observe("a", window(0.9, steps=300))
        several.observe("a", window(0.01, steps=300))
        clock.now_s += DECIDE_EVERY_S
    assert crowded.explain(4) == alone.explain(4)


def test_snapshots_are_given_now_and_then_to_each() -> None:
    clock = Clock()
    several = boards(clock=clock)
    assert several.of("a").snapshot("a") is None, "nothing is known of it"
    several.introduce("a", kind(calibration=CHEAP))
    several.introduce("b", kind())
    for _ in range(2):
        for name in "ab":
            assert several.of(name).snapshot(name) is not None
            assert several.of(name).snapshot(name) is None
        clock.now_s += SNAPSHOT_EVERY_S


def taught(clock: Clock) -> PolicyBoards:
    several = boards(clock=clock)
    several.introduce("a", kind(calibration=CHEAP))
    for seed in range(5):
        clock.now_s += DECIDE_EVERY_S
        several.observe("a", window(0.85, steps=200, seed=seed))
    return several


def snapshot_of(several: PolicyBoards) -> dict[str, Any]:
    found = several.of("a").snapshot("a")
    assert found is not None
    again: dict[str, Any] = json.loads(json.dumps(found))
    return again


def test_a_fresh_board_that_is_told_what_was_learned_decides_as_the_one_before() -> None:
    clock = Clock()
    before = taught(clock)
    fresh = boards(clock=clock)
    assert fresh.introduce("a", kind(learned=snapshot_of(before)))
    assert fresh.explain(4) == before.explain(4)
    assert table(fresh, "a").table.rungs == table(before, "a").table.rungs
    for several in (before, fresh):
        clock.now_s += DECIDE_EVERY_S
        several.observe("a", window(0.02, steps=500))
    assert fresh.explain(1) == before.explain(1)
    assert not fresh.may_calibrate("b", kind()), "the calibration is in it"
    untaught = boards(clock=clock)
    untaught.introduce("a", kind(calibration=CHEAP))
    assert untaught.explain(4) != before.explain(4)


def test_of_two_states_of_knowledge_the_one_with_more_steps_holds() -> None:
    clock = Clock()
    little = boards(clock=clock)
    little.introduce("a", kind(calibration=CHEAP))
    little.observe("a", window(0.0, steps=10))
    much = taught(clock)
    states = [snapshot_of(little), snapshot_of(much)]
    for order in (states, states[::-1]):
        fresh = boards(clock=clock)
        for name, state in zip("ab", order, strict=True):
            fresh.introduce(name, kind(learned=state))
        assert fresh.explain(4) == much.explain(4)


@pytest.mark.parametrize("from_whom", ["the board", "a snapshot"])
def test_steps_never_cost_a_calibration(from_whom: str) -> None:
    """What saw most traffic may have had no calibration."""
    clock = Clock()
    unmeasured = boards(clock=clock)
    unmeasured.introduce("a", kind())
    unmeasured.observe("a", window(0.9, steps=1000))
    measured = boards(clock=clock)
    measured.introduce("a", kind(calibration=CHEAP))
    first, second = snapshot_of(measured), snapshot_of(unmeasured)
    if from_whom == "a snapshot":
        first, second = second, first
    fresh = boards(clock=clock)
    fresh.introduce("a", kind(learned=first))
    fresh.introduce("b", kind(learned=second))
    assert not fresh.may_calibrate("c", kind())
    assert table(fresh, "a").table.rungs
    assert "from 4,000 rounds" in fresh.explain(4)["text"]


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"steps": 10**9},
        {"steps": 10**9, "max_batch": 10**9, "max_draft_len": 4, "context": 1.0, "cost": None},
    ],
)
def test_what_was_learned_and_is_damaged_is_learned_again(damaged: dict[str, Any]) -> None:
    several = boards()
    assert several.introduce("a", kind(calibration=CHEAP, learned=damaged))
    assert table(several, "a").table.rungs


def test_what_was_learned_under_other_limits_is_not_taken() -> None:
    clock = Clock()
    state = {**snapshot_of(taught(clock)), "max_batch": 1_000_000_000}
    several, plain = boards(clock=clock), boards(clock=clock)
    several.introduce("a", kind(calibration=CHEAP, learned=state))
    plain.introduce("a", kind(calibration=CHEAP))
    assert table(several, "a") == table(plain, "a")


def test_a_choice_by_hand_outlives_the_board_though_its_successor_decided_first() -> None:
    """Replicas introduce themselves, and so make it decide, before they tell what they hold."""
    clock = Clock()
    before = boards(clock=clock)
    before.set_by_hand(parse_choice({"fixed": 3}))
    before.introduce("a", kind())
    held = table(before, "a")
    clock.now_s += 60
    fresh = boards(clock=clock)
    fresh.introduce("new", kind(calibration=CHEAP))
    clock.now_s += DECIDE_EVERY_S
    assert fresh.observe("new", window(0.01, steps=500))
    decided = table(fresh, "new").table.version
    assert decided > held.table.version
    fresh.introduce("a", kind())
    assert fresh.subscribe("a", held)
    for name in ("a", "new"):
        published = table(fresh, name)
        assert (published.source, published.table.rungs) == ("hand", held.table.rungs)
        assert published.table.version > decided
        assert not fresh.subscribe(name, published)
    fresh.introduce("late", kind())
    assert not fresh.subscribe("late", held)
    assert not fresh.observe("a", window(0.9, steps=500))


def test_a_choice_by_hand_that_was_taken_back_stays_so() -> None:
    """A replica that was cut off brings an old one back after others brought what came later."""
    clock = Clock()
    before = boards(clock=clock)
    before.introduce("a", kind(calibration=CHEAP))
    before.set_by_hand(parse_choice({"fixed": 3}))
    old = table(before, "a")
    clock.now_s += 5
    before.set_by_hand(parse_choice("adaptive"))
    latest = table(before, "a")
    assert latest.source == "measured"
    fresh = boards(clock=clock)
    fresh.introduce("a", kind(calibration=CHEAP))
    assert fresh.subscribe("a", latest)
    fresh.introduce("b", kind())
    assert not fresh.subscribe("b", old)
    assert table(fresh, "b") == latest


def test_a_recovered_table_stays_within_the_minimum_gain() -> None:
    clock = Clock()
    before = taught(clock)
    held, state = table(before, "a"), snapshot_of(before)
    fresh = boards(clock=clock)
    fresh.introduce("a", kind(learned=state))
    fresh.subscribe("a", held)
    clock.now_s += DECIDE_EVERY_S
    fresh.observe("a", replace(window(0.85), steps=1))
    assert table(fresh, "a").table.rungs == held.table.rungs


def test_a_slower_machine_than_calibrated_is_seen_in_the_explanation() -> None:
    clock = Clock()
    several = boards(clock=clock)
    several.introduce("a", kind(calibration=CHEAP))
    report = window(0.6, steps=2000)
    for sums in report.shapes.values():
        sums.target_seconds *= 2
        sums.draft_seconds *= 2
    several.observe("a", report)
    assert "length 0 would give 1.00 in 20.0 ms" in several.explain(4)["text"]
