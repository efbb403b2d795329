"""Stop strings in text that arrives in pieces."""

from typing import SupportsIndex

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.text.stop_strings import StopMatcher, StopRule


@settings(max_examples=400, deadline=None)
@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=12),
    stop=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
    data=st.data(),
)
def test_matcher_cuts_at_the_earliest_stop_of_the_first_piece_that_has_one(
    pieces: list[str], stop: list[str], data: st.DataObject
) -> None:
    matcher = StopMatcher(StopRule(tuple(stop)))
    shown, seen = "", ""
    for piece in pieces:
        seen += piece
        expected_match = any(text in seen for text in stop)
        cut = data.draw(st.integers(0, len(piece)))
        assert (
            matcher.matches_ahead(piece[:cut]) or matcher.matches_ahead(piece[cut:])
        ) == expected_match
        shown += matcher.push(piece)
        assert matcher.matched == expected_match
        if expected_match:
            assert shown == seen[: min(seen.find(text) for text in stop if text in seen)]
            assert matcher.push("ab") == matcher.flush() == ""
            return
        assert seen.startswith(shown)
        held = seen[len(shown) :]
        longest = max(
            (n for text in stop for n in range(len(text)) if seen.endswith(text[:n])), default=0
        )
        assert len(held) == longest
    assert shown + matcher.flush() == seen


def test_a_long_stop_string_costs_no_more_than_its_length() -> None:
    matcher = StopMatcher(StopRule(("a" * 100_000 + "b",)))
    for _ in range(1000):
        assert matcher.push("a" * 100) == ""
    assert matcher.push("c") == "a" * 100_000 + "c"


def test_a_long_stop_string_is_not_walked_through_for_each_choice() -> None:
    class Counted(str):
        num_reads = 0

        def __getitem__(self, index: SupportsIndex | slice) -> str:
            Counted.num_reads += 1
            return super().__getitem__(index)

    rule = StopRule((Counted("ab" * 100_000),))
    for _ in range(100):
        assert StopMatcher(rule).push("abc") == "abc"
    assert Counted.num_reads < 5_000


def test_what_is_barred_is_shown_and_may_begin_a_match() -> None:
    matcher = StopMatcher(StopRule(("aba",)))
    matcher.bar()
    assert matcher.push("xaba") == "xab"
    matcher.unbar()
    assert matcher.push("ba") == ""
    assert matcher.matched


def test_the_string_that_matched_may_stay() -> None:
    matcher = StopMatcher(StopRule(("bc", "c"), is_shown=True))
    assert matcher.push("a") + matcher.push("bcd") == "abc"
