"""How many draft tokens a sequence's own record is worth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_record import DraftRecord

RATES = st.floats(0.05, 0.98)


def after(*rounds: tuple[int, int]) -> DraftRecord:
    record = DraftRecord()
    for drafted, kept in rounds:
        record.note(drafted, kept)
    return record


@given(RATES, st.integers(1, 8), st.floats(0, 0.95), st.floats(0, 500))
def test_an_average_record_gets_the_tokens_that_pay(
    acceptance: float, length: int, above: float, tried: float
) -> None:
    """However much of a record it is: break-even lies between the chances of `length` tokens and
    of one more."""
    low, high = acceptance ** (length + 1), acceptance**length
    break_even = high - above * (high - low)
    for record in (DraftRecord(), DraftRecord(tried, tried * acceptance)):
        assert record.draft_len(acceptance, break_even, 16) == length


@given(RATES, RATES, st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_it_stays_within_its_limits(
    acceptance: float, break_even: float, rounds: list[tuple[int, int]]
) -> None:
    record = after(*((drafted, min(drafted, kept)) for drafted, kept in rounds))
    assert 0 <= record.kept <= record.tried
    length = record.draft_len(acceptance, break_even, 6)
    assert 0 <= length <= 6
    assert length <= record.draft_len(acceptance, 0.5 * break_even, 6)


def test_better_drafts_get_more_and_worse_ones_less() -> None:
    acceptance, break_even = 0.7, 0.7**2
    lengths = [
        after(*[fate] * 20).draft_len(acceptance, break_even, 8)
        for fate in ((4, 0), (4, 1), (4, 2), (4, 4))
    ]
    assert DraftRecord().draft_len(acceptance, break_even, 8) == 2
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] > 4


def test_one_bad_round_is_no_verdict() -> None:
    assert after((4, 0)).draft_len(0.7, 0.7**2, 8) >= 1
    assert after(*[(4, 0)] * 20).draft_len(0.7, 0.7**2, 8) == 0


def test_who_gets_nothing_is_forgiven() -> None:
    """Rounds without a draft fade what was held against it."""
    record = after(*[(4, 0)] * 30)
    rounds = 0
    while record.draft_len(0.7, 0.7**2, 8) == 0:
        record.note(0, 0)
        rounds += 1
        assert rounds < 100
    assert rounds > 5


def test_the_latest_drafts_count_most() -> None:
    good, bad = [(4, 4)] * 20, [(4, 0)] * 20
    # Of all tokens alike it would be 0.8 both times.
    recovered, spoilt = after(*bad, *good), after(*good, *bad)
    assert recovered.kept / recovered.tried > 0.9
    assert spoilt.kept / spoilt.tried < 0.65


def test_tokens_behind_a_wrong_one_say_nothing() -> None:
    assert after((8, 0)) == after((1, 0))
    assert after((8, 3)) == after((4, 3))


@pytest.mark.parametrize(
    ("acceptance", "break_even", "length"),
    [(1.0, 0.9, 8), (0.5, 0.0, 8), (0.5, -1.0, 8), (0.0, 0.1, 0), (0.5, 1.0, 0), (0.5, 2.0, 0)],
)
def test_the_ends(acceptance: float, break_even: float, length: int) -> None:
    assert DraftRecord().draft_len(acceptance, break_even, 8) == length
