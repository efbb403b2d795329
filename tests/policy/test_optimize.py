"""Decisions against brute force, on costs and acceptances at random."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policy.acceptance import Acceptance, Source
from policy.cost import CostModel
from policy.optimize import THRIFT, Choice, Decision, Rounds, decide, evaluate, rungs_of
from policy.table import Lengths, SpeculationTable
from tests.policy.grids import CONTEXT, convex, drafting, grid

MAX_BATCH, MAX_LEN = 12, 4


def kept(chance: float, has_draft: float = 1.0) -> Acceptance:
    return Acceptance(has_draft, tuple(chance**s for s in range(1, 9)), chance, 1.0)


def alike(length: int) -> Lengths:
    return Lengths(length, length)


def mixed(modelled: float, looked_up: float, share: float) -> Acceptance:
    """A `share` of all drafts is looked up; chances of a token whose forerunners were kept."""
    sources = tuple(
        Source(part, tuple(chance**s for s in range(1, 9)))
        for part, chance in ((1.0 - share, modelled), (share, looked_up))
    )
    survival = tuple(
        sum(source.has_draft * source.survival[k] for source in sources) for k in range(8)
    )
    return Acceptance(1.0, survival, 1.0, 1.0, 0.0, (sources[0], sources[1]))


def decided(
    cost: CostModel,
    acceptance: Acceptance,
    previous: Callable[[int], Lengths] | None = None,
    min_gain: float = 0.03,
    max_len: int = MAX_LEN,
) -> Decision:
    return decide(
        cost,
        lambda batch_size: acceptance,
        max_batch=MAX_BATCH,
        max_len=max_len,
        context=CONTEXT,
        previous=previous,
        min_gain=min_gain,
    )


def brute_force(cost: CostModel, chance: float, has_draft: float, size: int, length: int) -> float:
    """Tokens a second, from the probability of each number of sequences with a draft."""
    seconds = sum(
        math.comb(size, m)
        * has_draft**m
        * (1 - has_draft) ** (size - m)
        * cost.target_seconds(size, m * length, CONTEXT)
        for m in range(size + 1)
    )
    seconds += cost.draft_seconds(size, length, CONTEXT)
    return size * (1 + has_draft * sum(chance**s for s in range(1, length + 1))) / seconds


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.0005, 0.02), min_size=25, max_size=25),
    st.floats(0, 0.005),
    st.floats(0, 0.99),
    st.floats(0, 1),
)
def test_brute_force_agrees(
    target: list[float], draft: float, chance: float, has_draft: float
) -> None:
    seconds = iter(target)
    cost = CostModel(grid(lambda b, s: 0.005 + next(seconds), lambda b, s: draft * s))
    acceptance = kept(chance, has_draft)
    for choice in decided(cost, acceptance).choices:
        size = choice.batch_size
        rates = [brute_force(cost, chance, has_draft, size, s) for s in range(MAX_LEN + 1)]
        found = Rounds(cost, acceptance, size, MAX_LEN, CONTEXT).best()
        assert rates[found.draft_len] >= max(rates) * (1 - 1e-9)
        nearly = [s for s, rate in enumerate(rates) if rate >= max(rates) / (1 + THRIFT)]
        assert choice.draft_len == nearly[0], "the shortest of those as good"
        assert choice.tokens_per_second == pytest.approx(rates[choice.draft_len], rel=1e-9)


def test_a_choice_is_tokens_over_seconds() -> None:
    choice = evaluate(CostModel(grid()), kept(0.5), 4, 2, CONTEXT)
    seconds = convex(4, 2) + drafting(4, 2)
    assert choice.tokens_per_round == pytest.approx(1.75)
    assert choice.round_seconds == pytest.approx(seconds)
    assert choice.tokens_per_second == pytest.approx(4 * 1.75 / seconds)


def test_zero_is_chosen_where_drafts_do_not_pay() -> None:
    cost = CostModel(grid())
    assert set(decided(cost, kept(0.0)).lengths) == {0}
    assert set(decided(cost, kept(0.9, has_draft=0.0)).lengths) == {0}
    dear = CostModel(grid(lambda b, s: 0.01 * (s + 1)))
    assert set(decided(dear, kept(0.99)).lengths) == {0}


def test_of_equals_the_shortest() -> None:
    """Each draft token is as likely as it is dear."""
    cost = CostModel(grid(lambda b, s: 0.5 ** (1 - s) if s < 2 else 9.0, lambda b, s: 0.0))
    assert Rounds(cost, kept(1.0), 1, MAX_LEN, CONTEXT).best().draft_len == 0


@pytest.mark.parametrize("chance", [0.4, 0.6, 0.8, 0.95])
def test_the_length_falls_as_the_batch_grows(chance: float) -> None:
    lengths = decided(CostModel(grid()), kept(chance)).lengths
    assert all(later <= earlier for earlier, later in pairwise(lengths))
    assert lengths[0] > lengths[-1]


def test_better_drafts_are_longer() -> None:
    cost = CostModel(grid())
    chosen = [decided(cost, kept(chance)).lengths for chance in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert all(a <= b for one, two in pairwise(chosen) for a, b in zip(one, two, strict=True))


def test_one_more_token_pays_from_the_break_even_on() -> None:
    """Cost straight in the length: a token that is kept as often as the break-even is worth
    nothing."""
    cost = CostModel(grid(lambda b, s: 0.01 + 0.001 * s, lambda b, s: 0.001 * s))
    found = evaluate(cost, kept(0.6), 4, 2, CONTEXT)
    survival = (0.6, 0.36, found.min_survival[0])
    with_it = evaluate(cost, Acceptance(1.0, survival, 1.0, 1.0), 4, 3, CONTEXT)
    assert with_it.tokens_per_second == pytest.approx(found.tokens_per_second)


def test_gains_below_the_minimum_change_nothing() -> None:
    cost, before = CostModel(grid()), decided(CostModel(grid()), kept(0.6))
    held = SpeculationTable(1, rungs_of(before)).lengths
    for chance in (0.55, 0.57, 0.59, 0.61, 0.63, 0.65):
        after = decided(cost, kept(chance), held, min_gain=0.03)
        for now, then in zip(after.choices, before.lengths, strict=True):
            was = evaluate(cost, kept(chance), now.batch_size, then, CONTEXT)
            assert now.draft_len <= then
            assert now.draft_len == then or now.tokens_per_second > 1.01 * was.tokens_per_second
    assert decided(cost, kept(0.75), held, min_gain=0.0).changed, "or nothing was held back"
    assert decided(cost, kept(0.75), held, min_gain=0.5).changed == ()


def test_gains_above_the_minimum_change_the_length_where_they_are() -> None:
    cost = CostModel(grid())
    held = SpeculationTable(1, rungs_of(decided(cost, kept(0.6)))).lengths
    after, fresh = decided(cost, kept(0.05), held), decided(cost, kept(0.05))
    assert after.changed
    for size in after.changed:
        gained = fresh.choices[size - 1].tokens_per_second
        assert after.lengths[size - 1] == fresh.lengths[size - 1] != held(size).longest
        assert (
            gained > 1.03 * evaluate(cost, kept(0.05), size, held(size), CONTEXT).tokens_per_second
        )


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 0.95), st.lists(st.integers(0, MAX_LEN), min_size=12, max_size=12))
@example(0.9296875, [2] * 12)  # only without thrift is it worth a change
def test_what_is_kept_is_nearly_the_best(chance: float, before: list[int]) -> None:
    cost, acceptance = CostModel(grid()), kept(chance)
    for choice in decided(cost, acceptance, lambda size: alike(before[size - 1])).choices:
        ideal = Rounds(cost, acceptance, choice.batch_size, MAX_LEN, CONTEXT).best()
        if choice.draft_len == before[choice.batch_size - 1]:
            assert ideal.tokens_per_second <= 1.03 * choice.tokens_per_second
        else:
            assert choice.tokens_per_second >= ideal.tokens_per_second / (1 + THRIFT)


def test_a_length_in_force_that_is_too_long_now_is_cut() -> None:
    after = decided(CostModel(grid()), kept(0.99), lambda size: alike(9), max_len=2)
    assert max(after.lengths) <= 2


@given(st.lists(st.integers(0, 3), max_size=20))
def test_rungs_say_what_was_decided(lengths: list[int]) -> None:
    choices = [
        Choice(b, alike(s), 1.0, 1.0, 1.0, (0.0, 0.0)) for b, s in enumerate(lengths, start=1)
    ]
    rungs = rungs_of(Decision(tuple(choices), ()))
    table = SpeculationTable(1, rungs)
    assert [table.draft_len(size) for size in range(1, len(lengths) + 1)] == lengths
    assert table.draft_len(len(lengths) + 1) == 0 or table.draft_len(len(lengths)) > 0
    assert all(left[1] != right[1] for left, right in pairwise(rungs))
    assert not rungs or rungs[-1][1] > 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.0005, 0.02), min_size=25, max_size=25),
    st.floats(0, 0.005),
    st.floats(0, 0.99),
    st.floats(0, 0.99),
    st.floats(0.01, 0.99),
)
def test_two_lengths_are_the_best_of_all_pairs(
    target: list[float], draft: float, modelled: float, looked_up: float, share: float
) -> None:
    seconds = iter(target)
    cost = CostModel(grid(lambda b, s: 0.005 + next(seconds), lambda b, s: draft * s))
    acceptance = mixed(modelled, looked_up, share)
    for size in (1, 3, 8):
        found = Rounds(cost, acceptance, size, MAX_LEN, CONTEXT).best()
        rates = [
            evaluate(cost, acceptance, size, Lengths(a, b), CONTEXT).tokens_per_second
            for a in range(MAX_LEN + 1)
            for b in range(MAX_LEN + 1)
        ]
        assert found.tokens_per_second == pytest.approx(max(rates), rel=1e-9)


def test_what_is_looked_up_may_be_longer_than_what_a_model_makes() -> None:
    cost = CostModel(grid())
    for choice in decided(cost, mixed(0.4, 0.95, 0.3)).choices:
        assert choice.lengths.looked_up >= choice.lengths.modelled
    one, *_, many = decided(cost, mixed(0.4, 0.95, 0.3)).choices
    assert one.lengths.looked_up > one.lengths.modelled > 0
    assert many.lengths.looked_up > many.lengths.modelled == 0
    same = decided(cost, mixed(0.6, 0.6, 0.5)).choices
    assert all(choice.lengths.looked_up >= choice.lengths.modelled for choice in same), "it is free"


def test_two_lengths_are_tokens_over_seconds() -> None:
    """One sequence: a round has the one draft or the other."""
    choice = evaluate(CostModel(grid()), mixed(0.5, 0.9, 0.25), 1, Lengths(1, 3), CONTEXT)
    assert choice.tokens_per_round == pytest.approx(1 + 0.75 * 0.5 + 0.25 * (0.9 + 0.81 + 0.729))
    seconds = 0.75 * convex(1, 1) + 0.25 * convex(1, 3) + drafting(1, 1)
    assert choice.round_seconds == pytest.approx(seconds)
    assert choice.draft_len == 3
