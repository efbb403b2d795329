"""Words and numbers of a decision, on a cost that can be followed by hand."""

from collections.abc import Sequence

import pytest

from policy.acceptance import Acceptance, Source
from policy.explain import MAX_CHANGES, explain, why
from policy.optimize import Choice, Decision
from policy.table import Lengths

TOKENS = {0: 1.0, 1: 1.2, 2: 1.31, 3: 1.36, 4: 1.38}
SECONDS = {0: 0.071, 1: 0.078, 2: 0.0842, 3: 0.0931, 4: 0.1012}
ACCEPTANCE = Acceptance(
    has_draft=1.0, survival=(0.36, 0.17, 0.08, 0.04), c=0.36, gamma=0.6, rounds=1240.4
)


def choice(batch_size: int, lengths: Lengths | int) -> Choice:
    if isinstance(lengths, int):
        lengths = Lengths(lengths, lengths)
    draft_len = lengths.modelled
    tokens, seconds = TOKENS[draft_len], SECONDS[draft_len]
    return Choice(
        batch_size=batch_size,
        lengths=lengths,
        tokens_per_round=tokens,
        round_seconds=seconds,
        tokens_per_second=batch_size * tokens / seconds,
        min_survival=(0.21, 0.13),
    )


def told_of(
    batch_size: int, chosen: int, lengths: Sequence[int], acceptance: Acceptance = ACCEPTANCE
) -> str:
    alike = [choice(batch_size, length) for length in lengths]
    best = max(alike, key=lambda one: one.tokens_per_second)
    return explain(choice(batch_size, chosen), best, alike, acceptance)


def alike(*lengths: int) -> list[Lengths]:
    return [Lengths(length, length) for length in lengths]


def decision(*lengths: int) -> Decision:
    choices = tuple(choice(size, length) for size, length in enumerate(lengths, start=1))
    return Decision(choices=choices, changed=())


def test_a_choice_is_explained_beside_its_neighbours_and_no_draft_at_all() -> None:
    assert told_of(8, 2, range(5)) == (
        "at batch 8 length 2: 1.31 tokens a round in 84 ms, 124 tokens/s; "
        "length 0 would give 1.00 in 71 ms, 113 tokens/s (-9 %); "
        "length 1 would give 1.20 in 78 ms, 123 tokens/s (-1.1 %); "
        "length 3 would give 1.36 in 93 ms, 117 tokens/s (-6 %); "
        "break-even survival 0.21, looked up 0.13; "
        "acceptance by position 0.36, 0.17, 0.08, 0.04 from 1,240 rounds"
    )


def test_a_length_that_is_not_the_best_is_told_with_the_best_one() -> None:
    told = told_of(8, 4, range(5))
    assert "at batch 8 length 4: 1.38 tokens a round in 101 ms" in told
    assert "length 2 would give 1.31 in 84 ms, 124 tokens/s (+14 %)" in told
    assert "the best is length 2" in told
    assert "length 1 would" not in told


def test_length_zero_is_not_compared_with_itself() -> None:
    told = told_of(1, 0, (0, 1))
    assert told.count("length 0") == 1
    assert "length 1 would give 1.20 in 78 ms, 15.4 tokens/s (+9 %)" in told
    assert "acceptance by position 0.36 from" in told


def test_sequences_without_a_draft_and_a_bare_prior_are_told() -> None:
    sparse = Acceptance(has_draft=0.25, survival=(0.8,), c=0.8, gamma=0.9, rounds=0.0)
    told = told_of(1, 1, (0, 1), sparse)
    assert told.endswith(
        "acceptance by position 0.80 of the 25% with one assumed, nothing drafted yet"
    )


def test_choices_of_several_batch_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"of one batch size, got \[4, 8\]"):
        explain(choice(8, 2), choice(8, 2), [choice(4, 0)], ACCEPTANCE)


def test_two_sources_are_told_apart() -> None:
    mixed = Acceptance(
        1.0, (0.5, 0.4), 0.5, 0.8, 90.0, (Source(0.75, (0.35, 0.2)), Source(0.25, (0.95, 0.9)))
    )
    singles = [choice(8, length) for length in range(5)]
    pair = choice(8, Lengths(2, 4))
    told = explain(choice(8, 1), pair, singles, mixed)
    assert told.startswith("at batch 8 length 1: 1.20 tokens a round")
    assert "length 2 modelled, 4 looked up would give 1.31 in 84 ms" in told
    assert "the best is length 2 modelled, 4 looked up; " in told
    assert told.endswith(
        "acceptance by position 0.50, 0.40 from 90 rounds: 0.35, 0.20 in the 75% that a model "
        "drafts, 0.95, 0.90 in the 25% looked up"
    )
    assert explain(pair, pair, singles, mixed).startswith(
        "at batch 8 length 2 modelled, 4 looked up: 1.31 tokens a round"
    )


def test_batch_sizes_that_change_alike_are_one_stretch() -> None:
    line = why(alike(1, 2, 1, 1, 1, 1), decision(2, 2, 0, 0, 2, 2), choice)
    assert line == (
        "batch 1: 1 -> 2 (+1.1 %), batch 3 to 4: 1 -> 0 (-8.5 %), batch 5 to 6: 1 -> 2 (+1.1 %)"
    )


def test_a_gap_ends_a_stretch() -> None:
    line = why(alike(1, 2, 1), decision(2, 2, 2), choice)
    assert line == "batch 1: 1 -> 2 (+1.1 %), batch 3: 1 -> 2 (+1.1 %)"


def test_sizes_unknown_before_had_no_drafts() -> None:
    assert why(alike(2), decision(2, 2, 2), choice) == "batch 2 to 3: 0 -> 2 (+10.5 %)"
    assert why(alike(2, 2, 2), decision(2, 2), choice) == "no length changed"


def test_a_line_stays_one_however_many_stretches_there_are() -> None:
    line = why(alike(*[0] * 40), decision(*[1, 0] * 20), choice)
    assert line.count("->") == MAX_CHANGES
    assert line.endswith(f", and {20 - MAX_CHANGES} more")
