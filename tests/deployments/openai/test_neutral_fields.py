"""Fields not honoured: neutral values pass, all others are refused by name. And any JSON."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.json_values import parse_object, show
from deployments.openai.schemas import ChatRequest, CompletionRequest
from engine.errors import RequestError
from tests.deployments.requests import chat, completion, refusal

BOTH = {
    "user": ("me", 5),
    "metadata": ({"a": "b"}, {"a": 1}),
    "safety_identifier": ("x", []),
    "prompt_cache_key": ("x", 1),
    "service_tier": ("auto", "flex"),
    "store": (False, True),
}
COMPLETION_ONLY = {
    "suffix": ("", "x"),
}
CHAT_ONLY = {
    "audio": (None, {"voice": "x"}),
    "function_call": ("none", "auto"),
    "functions": ([], [{}]),
    "modalities": (["text"], ["audio"]),
    "moderation": (None, {}),
    "prediction": (None, {}),
    "prompt_cache_options": (None, {}),
    "prompt_cache_retention": (None, "24h"),
    "reasoning_effort": ("none", "low"),
    "verbosity": (None, "low"),
    "web_search_options": (None, {}),
}
NEUTRAL_CASES = [
    *((completion, name, *values) for name, values in (BOTH | COMPLETION_ONLY).items()),
    *((chat, name, *values) for name, values in (BOTH | CHAT_ONLY).items()),
]


@pytest.mark.parametrize(("parse", "name", "neutral", "other"), NEUTRAL_CASES)
def test_fields_not_honoured(parse: Any, name: str, neutral: Any, other: Any) -> None:
    assert parse(**{name: neutral}) == parse(**{name: None}) == parse()
    error = refusal(parse, **{name: other})
    assert error.field == name
    assert str(error).startswith(f"{name} is not supported, so it must be left out or be ")
    assert str(error).endswith(f"; got {json.dumps(other)}")


def test_true_is_not_one() -> None:
    assert refusal(completion, store=0).field == "store"


def test_all_fields_of_the_openai_client_are_known() -> None:
    from openai.types import completion_create_params as completion_params
    from openai.types.chat import completion_create_params as chat_params

    for parse, params in (
        (completion, completion_params.CompletionCreateParamsBase),
        (chat, chat_params.CompletionCreateParamsBase),
    ):
        for name in set(params.__annotations__) - {"model", "messages", "prompt"}:
            # `stop` alone takes lists of strings, but not this one.
            error = refusal(parse, **{name: [""]})
            assert "is not a field" not in str(error), name


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = sorted(
    {
        *(*BOTH, *COMPLETION_ONLY, *CHAT_ONLY),
        *(*ChatRequest.model_fields, *CompletionRequest.model_fields),
    }
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(), json_values, max_size=4))
def test_nothing_but_request_errors(fields: dict[str, Any]) -> None:
    for parse in (completion, chat):
        try:
            parse(**fields)
        except RequestError as error:
            str(error).encode("utf-8", "surrogatepass")
            json.dumps({"message": str(error), "param": error.field})


@settings(max_examples=300, deadline=None)
@given(json_values)
def test_any_value_can_be_shown(value: object) -> None:
    assert len(show(value)) <= 80
    assert show(value).isascii()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "the body is not valid JSON: Expecting value at line 1 column 1"),
        (b'{"a": 1,}', "the body is not valid JSON: "),
        (b"[1]", "the body must be a JSON object, got [1]"),
        (b"null", "the body must be a JSON object, got null"),
        (b'{"a": NaN}', "the body is not valid JSON: NaN is not a JSON number"),
        (b'{"a": -Infinity}', "the body is not valid JSON: -Infinity is not a JSON number"),
        (b'{"a": 1, "a": 2}', 'the body gives "a" twice in one object'),
        (b'{"a": "\xff"}', "the body is not valid UTF-8 at byte 7"),
        (b'{"a": ' + b"9" * 5000 + b"}", "the body holds a number with too many digits"),
        (b'{"a": ' + b"[" * 100_000, "the body is nested too deeply"),
    ],
)
def test_bodies_that_are_no_object(body: bytes, complaint: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_object(body)
    assert str(caught.value).startswith(complaint)
