"""The reader takes what Python's own strict JSON decoder takes, and gives it out early."""

import json
from typing import Any, NoReturn

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tools.json_reader import read_value
from deployments.tools.source import Source
from tests.deployments.tools.test_chunks import json_objects, writers


def read(text: str) -> tuple[bool, str]:
    """Whether a value was read, and what went to the sink, from `text` by characters."""
    source = Source()
    pieces: list[str] = []
    steps = read_value(source, pieces.append)
    try:
        for character in text:
            source.push(character)
            next(steps)
        source.end()
        next(steps)
    except StopIteration as stop:
        return stop.value, "".join(pieces)
    raise AssertionError("the reader waits for more than the end")


def decoded_length(text: str) -> int | None:
    """Length of the JSON value that `text` begins with, if it does."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    try:
        return json.JSONDecoder(parse_constant=refuse).raw_decode(text)[1]
    except ValueError:
        return None


@settings(max_examples=1000, deadline=None)
@given(
    json_objects,
    writers,
    st.integers(0, 200),
    st.integers(0, 2),
    st.sampled_from(["", *'{}[]",:\\-+.0123eEuntfalse \n\t\x00\x7fé', "NaN", "\\ud800", "\\u12g4"]),
)
def test_agrees_with_the_decoder(
    value: dict[str, Any], writer: dict[str, Any], at: int, num_removed: int, inserted: str
) -> None:
    valid = json.dumps(value, **writer)
    at = 1 + at % len(valid)
    text = valid[:at] + inserted + valid[at + num_removed :]
    is_whole, taken = read(text)
    length = decoded_length(text)
    assert is_whole == (length is not None)
    assert text.startswith(taken)
    if length is not None:
        assert taken == text[:length]


def test_stops_at_the_first_wrong_character() -> None:
    for text, taken in [
        ('{"a": 1.}', '{"a": 1.'),
        ('{"a": -x}', '{"a": -'),
        ('{"a": 1e+}', '{"a": 1e+'),
        ('{"a": nulL}', '{"a": nul'),
        ('{"\\u12x4": 1}', '{"\\u12'),
        ('{"a\\x": 1}', '{"a\\'),
        ('{"a": [1,]}', '{"a": [1,'),
        ('{"a": [1}', '{"a": [1'),
        ('{"a" 1}', '{"a" '),
        ('{"a": 1,}', '{"a": 1,'),
        ("{'a': 1}", "{"),
    ]:
        assert read(text) == (False, taken)


def test_depth_costs_no_recursion() -> None:
    text = '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"
    assert read(text) == (True, text)
