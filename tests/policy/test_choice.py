import pytest

from policy.choice import MAX_RUNGS, parse_choice
from policy.quoting import SHOWN_CHARACTERS, shown
from policy.table import UNBOUNDED_BATCH_SIZE


@pytest.mark.parametrize(
    ("value", "mode", "rungs"),
    [
        ("off", "off", ()),
        ("adaptive", "adaptive", ()),
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
        ("Adaptive", "got 'Adaptive'"),
        ({"adaptive": {}}, r"must be adaptive, off, .*got \{'adaptive': \{\}\}"),
        (True, "got True"),
        (None, "got None"),
        (4, "got 4"),
        ([], r"got \[\]"),
        ({}, r"got \{\}"),
        ({"fixed": 2, "table": {}}, "must be adaptive, off"),
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
        ({"table": {2: 17}}, r"^table\[2\] must be between 0 and 16, got 17"),
        ({"table": {2: 1.5}}, r"table\[2\] must be a whole number, got 1.5"),
        ({"table": {1: 2, "1": 3}}, "batch size 1 twice"),
        ({"table": {2**31: 2}}, "^table must have batch sizes between 1 and 2147483647, got 21474"),
        ({"table": {str(2**31): 2}}, "got '2147483648'"),
        ({"table": {"9" * 5000: 2}}, "between 1 and 2147483647, got '999"),
        ({"table": {10**5000: 2}}, "between 1 and 2147483647, got a value with too many digits"),
        ({"table": {-(10**5000): 2}}, "between 1 and"),
        ({"table": {1: 10**5000}}, r"^table\[1\] must be between 0 and 16, got a value with too"),
        ({"table": {"": 2}}, "^table must have whole numbers as batch sizes, got ''"),
        ({"table": {"x" * 10**6: 2}}, "got 'xxx"),
        ({"table": dict.fromkeys(range(1, 66), 1)}, "^table must have at most 64 batch .*got 65$"),
        ({"table": "x" * 10**6}, "^table must map"),
        ({"fixed": 10**5000}, "between 0 and 16"),
        ({"fixed": list(range(10**5))}, "^fixed must be a whole number, got "),
        ({"x" * 10**6: 2}, "^must be adaptive, off"),
        (["x" * 10**5] * 10, "^must be adaptive, off"),
    ],
)
def test_a_bad_policy_is_refused_in_one_line(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        parse_choice(value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 100 + SHOWN_CHARACTERS


def test_the_largest_table_is_read() -> None:
    sizes = [*range(1, MAX_RUNGS), UNBOUNDED_BATCH_SIZE]
    rungs = parse_choice({"table": {f"00{size}": 3 for size in sizes}}).rungs
    assert rungs == tuple((size, 3) for size in sizes)


def test_values_are_shown_as_they_are_until_they_are_long() -> None:
    assert shown({"a": [1, 2.5, None, "\n"]}) == r"{'a': [1, 2.5, None, '\n']}"
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for large in (nested, "x" * 10**6, {i: i for i in range(10**5)}, 10**4000, 10**5000):
        assert len(shown(large)) <= SHOWN_CHARACTERS


def test_fingerprints_differ_exactly_with_the_choice() -> None:
    values: list[object] = [
        *("off", "adaptive", {"fixed": 0}, {"fixed": 2}),
        *({"table": {1: 2}}, {"table": {2: 2}}),
    ]
    assert len({parse_choice(value).fingerprint for value in values}) == len(values)
    assert parse_choice("off").fingerprint == parse_choice(False).fingerprint


def test_a_longer_draft_than_the_engine_makes_is_refused() -> None:
    choice = parse_choice({"table": {1: 5}})
    assert choice.limited_to(5) is choice
    with pytest.raises(ValueError, match=r"at most 4, got 5: engine\.max_draft_len"):
        choice.limited_to(4)
    with pytest.raises(ValueError, match="no drafter"):
        choice.limited_to(0)
