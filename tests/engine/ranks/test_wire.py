"""A step's plan as bytes: all of it comes back, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ranks import wire
from engine.ranks.wire import decode, encode
from engine.runner import RunnerInput

numbers = st.integers(0, 2**31 - 1)
parts = st.builds(
    RunnerInput,
    st.lists(numbers, max_size=6),
    numbers,
    st.lists(numbers, max_size=6),
    numbers,
)


@given(st.lists(parts, max_size=5), numbers)
def test_what_was_sent_comes_back(inputs: list[RunnerInput], version: int) -> None:
    assert decode(encode(inputs, version)) == (inputs, version)


@given(st.binary(max_size=80))
def test_other_bytes_are_a_value_error(message: bytes) -> None:
    try:
        inputs, version = decode(message)
    except ValueError:
        return
    assert encode(inputs, version) == message


def test_every_cut_is_noticed() -> None:
    message = encode([RunnerInput([5, 6], 3, [1], 2), RunnerInput([7], 0, [2, 4], 1)], 9)
    for end in range(len(message)):
        with pytest.raises(ValueError):
            decode(message[:end])
    with pytest.raises(ValueError):
        decode(message + message[:4])


def test_a_plan_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_BYTES", 64)
    with pytest.raises(ValueError, match="takes 72 bytes; the limit is 64"):
        encode([RunnerInput([1] * 12, 0, [], 0)], 0)


def test_a_step_of_sixteen_sequences_is_small() -> None:
    """With a context of 1,000 tokens in blocks of 16, and a draft of 4."""
    inputs = [RunnerInput([1] * 5, 1000, list(range(63)), 5) for _ in range(16)]
    assert len(encode(inputs, 1)) == 4 * (2 + 16 * (4 + 5 + 63))
