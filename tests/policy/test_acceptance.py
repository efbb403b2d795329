"""How many draft tokens are kept, from drafts whose chance is known."""

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.acceptance import PRIOR_ACCEPTANCE, Acceptance, AcceptanceTracker
from policy.stats import DraftCounts, Fate
from tests.policy.grids import drafts

HALF_LIFE = 100.0


def seen(counts: dict[int, DraftCounts], max_len: int = 8) -> AcceptanceTracker:
    tracker = AcceptanceTracker(max_len)
    tracker.observe(counts, steps=1, half_life_steps=HALF_LIFE)
    return tracker


def test_the_prior_before_anything_was_drafted() -> None:
    prior = AcceptanceTracker(8).pooled()
    assert prior.survival[0] == pytest.approx(PRIOR_ACCEPTANCE)
    assert (prior.has_draft, prior.rounds, len(prior.survival)) == (1.0, 0.0, 8)
    assert prior.accepted(0) == 0.0


@pytest.mark.parametrize("chance", [0.05, 0.5, 0.9])
def test_the_estimate_converges(chance: float) -> None:
    found = seen({1: drafts(chance, 4000)}).estimate(1)
    for position in range(4):
        assert found.survival[position] == pytest.approx(chance ** (position + 1), abs=0.03)
    assert found.mean_conditional == pytest.approx(chance, abs=0.05)
    assert found.rounds == 4000
    assert found.accepted(2) == pytest.approx(chance + chance**2, abs=0.05)


def test_a_few_drafts_weigh_little() -> None:
    counts = DraftCounts()
    counts.record(Fate(4, 4))
    assert PRIOR_ACCEPTANCE < seen({1: counts}).pooled().survival[0] < 0.5


def test_rounds_without_a_draft_are_a_share_of_their_own() -> None:
    counts = drafts(0.8, 500)
    counts.record(Fate(0, 0), 1500)
    found = seen({1: counts}).pooled()
    assert found.has_draft == pytest.approx(0.25, abs=0.01)
    assert found.survival[0] == pytest.approx(0.8, abs=0.05)
    assert found.accepted(1) == pytest.approx(0.2, abs=0.02)


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(1, 300)),
        max_size=8,
    )
)
def test_survival_never_rises_and_is_a_probability(fates: list[tuple[int, int, int]]) -> None:
    counts = DraftCounts()
    for drafted, kept, times in fates:
        counts.record(Fate(drafted, min(drafted, kept)), times)
    found = seen({1: counts}).pooled()
    assert len(found.survival) == 8
    assert all(0.0 <= later <= earlier <= 1.0 for earlier, later in pairwise(found.survival))
    assert 0.0 < found.has_draft <= 1.0
    assert 0.0 < found.mean_conditional < 1.0


@given(st.floats(0.01, 0.99), st.integers(1, 16))
def test_the_mean_of_a_constant_chance_is_that_chance(chance: float, max_len: int) -> None:
    survival = tuple(chance**s for s in range(1, max_len + 1))
    assert Acceptance(1.0, survival, 1.0, 1.0).mean_conditional == pytest.approx(chance)


def test_positions_never_seen_go_on_as_the_curve_does() -> None:
    found = seen({1: drafts(0.7, 3000, draft_len=3)}).pooled()
    assert found.survival[3] == pytest.approx(0.7**4, abs=0.08)
    assert found.survival[7] > 0.0
    assert all(later <= earlier for earlier, later in pairwise(found.survival))
    never = seen({1: drafts(0.0, 3000, draft_len=3)}).pooled()
    assert never.accepted(8) < 0.01


@pytest.mark.parametrize(("times", "counts_for_something"), [(4, False), (6, True)])
def test_a_position_hardly_seen_is_told_by_the_curve(
    times: int, counts_for_something: bool
) -> None:
    found = []
    for drafted in (2, 3):
        counts = drafts(0.7, 500, draft_len=2)
        counts.record(Fate(drafted, 2), times)
        found.append(seen({1: counts}).pooled().survival)
    assert (found[0] != found[1]) == counts_for_something


def test_what_was_before_fades() -> None:
    tracker = AcceptanceTracker(4)
    tracker.observe({1: drafts(0.1, 1000)}, steps=1000, half_life_steps=HALF_LIFE)
    first = tracker.pooled().survival[0]
    tracker.observe({1: drafts(0.9, 200)}, steps=200, half_life_steps=HALF_LIFE)
    assert first == pytest.approx(0.1, abs=0.03)
    # Two half-lives: 250 of the old ones are left.
    expected = (200 * 0.9 + 250 * 0.1 + 8 * 0.4) / (200 + 250 + 8)
    assert tracker.pooled().survival[0] == pytest.approx(expected, abs=0.03)
    tracker.observe({}, steps=0, half_life_steps=HALF_LIFE)
    assert tracker.pooled().rounds == pytest.approx(450)


def test_batch_sizes_are_told_apart_only_with_evidence() -> None:
    alike = seen({1: drafts(0.5, 2000, seed=1), 8: drafts(0.5, 2000, seed=2)})
    assert alike.estimate(1) == alike.estimate(8) == alike.pooled()
    few = seen({1: drafts(0.9, 30), 8: drafts(0.3, 2000)})
    assert few.estimate(1) == few.pooled()
    apart = seen({1: drafts(0.9, 1000), 8: drafts(0.3, 1000)})
    assert apart.estimate(1).survival[0] == pytest.approx(0.9, abs=0.04)
    assert apart.estimate(8).survival[0] == pytest.approx(0.3, abs=0.04)
    assert apart.estimate(7) == apart.estimate(8), "of one bucket"
    assert apart.estimate(2) == apart.pooled(), "never seen"


def test_drafts_that_are_found_less_often_are_a_difference_too() -> None:
    sparse = drafts(0.5, 300)
    sparse.record(Fate(0, 0), 1700)
    apart = seen({1: drafts(0.5, 2000, seed=1), 8: sparse})
    assert apart.estimate(8).has_draft == pytest.approx(0.15, abs=0.02)
    assert apart.estimate(1).has_draft == pytest.approx(1.0, abs=0.02)


def test_no_drafts_at_all_are_possible() -> None:
    none = AcceptanceTracker(0).pooled()
    assert none.survival == ()
    assert none.mean_conditional == PRIOR_ACCEPTANCE


def test_it_survives_json() -> None:
    tracker = seen({1: drafts(0.9, 700), 8: drafts(0.3, 900)})
    tracker.observe({2: drafts(0.6, 50)}, steps=7, half_life_steps=HALF_LIFE)
    again = AcceptanceTracker.from_json(json.loads(json.dumps(tracker.as_json())))
    assert [again.estimate(size) for size in (1, 2, 8)] == [
        tracker.estimate(size) for size in (1, 2, 8)
    ]


NO_COUNTS: list[object] = [[1], {"1": 2}, {"1": {}}]
NO_NUMBERS: list[object] = [None, 3, [-1.0], [math.nan], [10**400], ["x"]]


def state(asked: object = 2.0, **counts: object) -> dict[str, Any]:
    good = {"asked": 2.0, "reached": [2.0, 1.0], "kept": [1.0]}
    sources = {"modelled": good, "looked_up": {**good, **counts}}
    return {"max_len": 8, "counts": {"1": {"asked": asked, **sources}}}


@pytest.mark.parametrize(
    "value",
    [
        *(None, 3, [], "x", {}, {"max_len": 8}, {"max_len": 8, "counts": None}),
        *({**state(), "max_len": n} for n in (-1, 17, 10**9, math.nan, math.inf, None, "x")),
        *({**state(), "counts": counts} for counts in NO_COUNTS),
        {**state(), "counts": {"x": state()["counts"]["1"]}},
        *(state(asked=number) for number in (-1.0, math.nan, math.inf, 10**400, None)),
        *(state(reached=numbers) for numbers in NO_NUMBERS),
        state(kept=[3.0]),
        state(kept=[1.0, 1.0, 1.0]),
        state(reached=[2.1, 1.0]),
        {**state(), "counts": {"1": {**state()["counts"]["1"], "looked_up": {"asked": -1.0}}}},
    ],
)
def test_what_is_no_state_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError):
        AcceptanceTracker.from_json(value)


def test_drafts_of_two_sources_are_a_mixture() -> None:
    """A model's are short of breath; what stands in the text goes on, which is counted of more
    drafts than were that long: that makes them no likelier."""
    counts = drafts(0.5, 3000)
    for _ in range(1000):
        counts.record(Fate(1, 1, looked_up=True))
        counts.looked_up.record(7, 7, first=1)
    found = seen({1: counts}).pooled()
    for position in range(8):
        expected = 0.75 * 0.5 ** (position + 1) + 0.25
        assert found.survival[position] == pytest.approx(expected, abs=0.03)


def test_a_model_that_is_not_asked_is_not_forgotten() -> None:
    """Where drafts are looked up alone, rounds without one say nothing of what a model would do."""
    tracker = seen({1: drafts(0.8, 1000)})
    some = DraftCounts()
    some.record(Fate(4, 2, looked_up=True, asks_model=False), 20)
    some.record(Fate(0, 0, asks_model=False), 80)
    for _ in range(3):
        tracker.observe({1: some}, 100, HALF_LIFE)
    sources = tracker.pooled().by_source
    assert sources is not None
    modelled, looked_up = sources
    assert looked_up.has_draft == pytest.approx(0.2 * 300 / 475, abs=0.05)
    assert modelled.has_draft == pytest.approx(1.0 - looked_up.has_draft, abs=0.01)
    assert modelled.survival[1] == pytest.approx(0.64, abs=0.05)


def test_positions_that_are_hardly_reached_are_remembered_for_longer() -> None:
    tracker = seen({1: drafts(0.9, 1000)})
    for _ in range(3):
        tracker.observe({1: drafts(0.9, 100, draft_len=1)}, 100, HALF_LIFE)
    long = tracker.pooled().survival[3]
    assert long == pytest.approx(0.9**4, abs=0.05)
    few = drafts(0.9, 80, draft_len=1)
    few.merge(drafts(0.1, 20, draft_len=4))
    tracker.observe({1: few}, 100, HALF_LIFE)
    assert tracker.pooled().survival[1] < 0.75 < 0.9**2, "but not against what is seen"


def test_steps_in_which_nobody_was_asked_wipe_nothing_out() -> None:
    tracker = AcceptanceTracker(4)
    tracker.observe({1: drafts(0.8, 50, draft_len=1)}, 50, 50.0)
    before = tracker.pooled()
    tracker.observe({}, 1, 50.0)
    assert tracker.pooled().rounds > 0.9 * before.rounds
