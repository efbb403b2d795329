import pytest

from policy.choice import parse_choice
from policy.table import UNBOUNDED_BATCH_SIZE


@pytest.mark.parametrize(
    ("value", "mode", "rungs"),
    [
        ("off", "off", ()),
        (False, "off", ()),
        ({"fixed": 4}, "fixed", ((UNBOUNDED_BATCH_SIZE, 4),)),
        ({"fixed": 0}, "fixed", ()),
        ({"table": {8: 2, 1: 5}}, "table", ((1, 5), (8, 2))),
        ({"table": {"8": 2, "1": 5}}, "table", ((1, 5), (8, 2))),
    ],
)
def test_a_policy_is_read(value: object, mode: str, rungs: tuple[tuple[int, int], ...]) -> None:
    choice = parse_choice(value)
    assert (choice.mode, choice.rungs) == (mode, rungs)
    assert parse_choice(choice.setting) == choice


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("on", "got 'on'"),
        (True, "got True"),
        (None, "got None"),
        (4, "got 4"),
        ([], r"got \[\]"),
        ({}, r"got \{\}"),
        ({"fixed": 2, "table": {}}, "must be off"),
        ({"fixd": 2}, "fixd"),
        ({"fixed": "2"}, "fixed must be a whole number, got '2'"),
        ({"fixed": True}, "fixed must be a whole number, got True"),
        ({"fixed": -1}, "between 0 and 16, got -1"),
        ({"fixed": 17}, "between 0 and 16, got 17"),
        ({"table": {}}, "table must map"),
        ({"table": 3}, "table must map"),
        ({"table": {0: 2}}, "got 0"),
        ({"table": {"x": 2}}, "'x'"),
        ({"table": {1.5: 2}}, "1.5"),
        ({"table": {True: 2}}, "True"),
        ({"table": {2: 17}}, "batch size 2 must be between 0 and 16, got 17"),
        ({"table": {2: 1.5}}, r"table\[2\] must be a whole number, got 1.5"),
        ({"table": {1: 2, "1": 3}}, "batch size 1 twice"),
    ],
)
def test_a_bad_policy_is_refused_in_one_line(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        parse_choice(value)
    assert "\n" not in str(caught.value)


def test_fingerprints_differ_exactly_with_the_choice() -> None:
    values: list[object] = ["off", {"fixed": 0}, {"fixed": 2}, {"table": {1: 2}}, {"table": {2: 2}}]
    assert len({parse_choice(value).fingerprint for value in values}) == len(values)
    assert parse_choice("off").fingerprint == parse_choice(False).fingerprint


def test_a_longer_draft_than_the_engine_makes_is_refused() -> None:
    choice = parse_choice({"table": {1: 5}})
    assert choice.limited_to(5) is choice
    with pytest.raises(ValueError, match=r"at most 4, got 5: engine\.max_draft_len"):
        choice.limited_to(4)
    with pytest.raises(ValueError, match="no drafter"):
        choice.limited_to(0)
