"""Every field of a request is honoured, or refused by name with its value."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.json_values import parse_object, show
from deployments.schemas import ChatRequest, CompletionRequest
from engine.errors import RequestError

HELLO = [{"role": "user", "content": "hello"}]


def completion(**fields: Any) -> CompletionRequest:
    return CompletionRequest.parse({"model": "m", "prompt": "hi"} | fields)


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.parse({"model": "m", "messages": HELLO} | fields)


def refusal(parse: Any, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    return caught.value


def test_every_sampling_field_is_honoured() -> None:
    sampling = completion(
        max_tokens=7,
        temperature=0,
        top_p=0.5,
        top_k=3,
        seed=-5,
        stop_token_ids=[4, 2],
        speculation={"max_draft_tokens": 2},
    ).sampling(room=100)
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (7, 0.0, 0.5)
    assert (sampling.top_k, sampling.seed, sampling.stop_token_ids) == (3, -5, (4, 2))
    assert sampling.max_draft_tokens == 2


def test_defaults_are_those_of_openai() -> None:
    sampling = completion().sampling(room=100)
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (16, 1.0, 1.0)
    assert (sampling.seed, sampling.top_k, sampling.max_draft_tokens) == (None, 0, None)
    assert chat().sampling(room=100).max_tokens == 100


@pytest.mark.parametrize(
    "name",
    [
        *("max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stop_token_ids"),
        *("stream", "stream_options", "speculation"),
    ],
)
def test_null_means_left_out(name: str) -> None:
    assert completion(**{name: None}).sampling(100) == completion().sampling(100)
    assert chat(**{name: None}).sampling(100) == chat().sampling(100)


def test_max_tokens_is_cut_to_the_room_there_is() -> None:
    assert completion(max_tokens=10**30).sampling(room=5).max_tokens == 5
    assert chat(max_completion_tokens=9).sampling(room=5).max_tokens == 5
    assert chat(max_completion_tokens=3).sampling(room=5).max_tokens == 3
    assert chat(max_completion_tokens=3, max_tokens=3).sampling(room=5).max_tokens == 3


def test_numbers_larger_than_any_tensor_holds_are_cut() -> None:
    sampling = completion(top_k=10**30, speculation={"max_draft_tokens": 10**30}).sampling(5)
    assert sampling.top_k == 2**31 - 1
    assert sampling.max_draft_tokens == 16


@pytest.mark.parametrize(
    ("prompt", "parsed"),
    [("a", "a"), (["a"], "a"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ("\0", "\0")],
)
def test_forms_of_a_prompt(prompt: object, parsed: object) -> None:
    assert completion(prompt=prompt).prompt == parsed


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ("", 'prompt must not be empty, got ""'),
        ([], "prompt must not be empty, got []"),
        ([""], 'prompt must not be empty, got [""]'),
        ([[]], "prompt must not be empty, got [[]]"),
        (None, "prompt must be a string, got null"),
        (["a", "b"], "prompt must be one prompt (several in a request are not"),
        ([[1], [2]], "prompt must be one prompt (several in a request are not"),
        ([1, "a"], "prompt must be a string or a list of token ids"),
        ([True], "prompt must be a string or a list of token ids, got [true]"),
        ([1.0], "prompt must be a string or a list of token ids, got [1.0]"),
        ({"a": 1}, 'prompt must be a string, got {"a": 1}'),
        ("\ud800", "prompt must be valid Unicode"),
    ],
)
def test_bad_prompts(prompt: object, complaint: str) -> None:
    error = refusal(completion, prompt=prompt)
    assert error.field == "prompt"
    assert str(error).startswith(complaint)


@pytest.mark.parametrize(
    ("stop", "parsed"),
    [("a", ("a",)), (["a", "b"], ("a", "b")), (None, ()), ([], ())],
)
def test_forms_of_stop(stop: object, parsed: tuple[str, ...]) -> None:
    assert completion(stop=stop).stop == parsed


@pytest.mark.parametrize("stop", ["", [""], ["a"] * 5, [1], {"a": 1}, 3, "\udfff", [None]])
def test_bad_stop(stop: object) -> None:
    assert refusal(completion, stop=stop).field == "stop"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"max_tokens": -3}, "max_tokens must be at least 1, got -3"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": "5"}, 'max_tokens must be a whole number, got "5"'),
        ({"max_tokens": 5.0}, "max_tokens must be a whole number, got 5.0"),
        ({"max_tokens": True}, "max_tokens must be a whole number, got true"),
        ({"temperature": -1}, "temperature must be between 0 and 2, got -1"),
        ({"temperature": 2.5}, "temperature must be between 0 and 2, got 2.5"),
        ({"temperature": "0"}, 'temperature must be a number, got "0"'),
        ({"temperature": float("nan")}, "temperature must be a finite number, got NaN"),
        ({"temperature": float("inf")}, "temperature must be a finite number, got Infinity"),
        ({"temperature": True}, "temperature must be a number, got true"),
        ({"temperature": 10**400}, "temperature must be a number, got 1000"),
        ({"top_p": 0}, "top_p must be above 0 and at most 1, got 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ({"top_k": -1}, "top_k must be 0 (off) or more, got -1"),
        ({"seed": 2**63}, f"seed must fit in 64 bits, got {2**63}"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"stop_token_ids": 5}, "stop_token_ids must be a list, got 5"),
        ({"stop_token_ids": [1, "a"]}, 'stop_token_ids[1] must be a whole number, got "a"'),
        ({"stream": "yes"}, 'stream must be true or false, got "yes"'),
        ({"stream": 1}, "stream must be true or false, got 1"),
        ({"stream_options": {"include_usage": True}}, "stream_options needs stream to be true"),
        ({"stream": True, "stream_options": 5}, "stream_options must be an object, got 5"),
        (
            {"stream": True, "stream_options": {"include_usage": 1}},
            "stream_options.include_usage must be true or false, got 1",
        ),
        (
            {"stream": True, "stream_options": {"x": 1}},
            "stream_options.x is not a field of this request",
        ),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation is not supported yet",
        ),
        (
            {"speculation": {"max_draft_tokens": -1}},
            "speculation.max_draft_tokens must be 0 or more, got -1",
        ),
        ({"speculation": {"k": 1}}, "speculation.k is not a field of this request"),
        ({"model": None}, "model must be a string, got null"),
        ({"model": 5}, "model must be a string, got 5"),
        ({"no_such": 1}, "no_such is not a field of this request"),
        ({"\ud800": 1}, '"\\ud800" is not a field of this request'),
    ],
)
@pytest.mark.parametrize("parse", [completion, chat])
def test_bad_values_are_named(parse: Any, fields: dict[str, Any], complaint: str) -> None:
    error = refusal(parse, **fields)
    assert str(error).startswith(complaint)
    assert complaint.startswith(error.field)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(RequestError, match="model is required"):
        CompletionRequest.parse({"prompt": "a"})
    with pytest.raises(RequestError, match="prompt is required"):
        CompletionRequest.parse({"model": "m"})
    with pytest.raises(RequestError, match="messages is required"):
        ChatRequest.parse({"model": "m"})


BOTH = {
    "n": (1, 2),
    "presence_penalty": (0.0, 0.1),
    "frequency_penalty": (0, -1),
    "repetition_penalty": (1.0, 1.1),
    "min_p": (0, 0.1),
    "min_tokens": (0, 1),
    "logit_bias": ({}, {"5": 1}),
    "bad_words": ([], ["a"]),
    "ignore_eos": (False, True),
    "include_stop_str_in_output": (False, True),
    "skip_special_tokens": (True, False),
    "response_format": ({"type": "text"}, {"type": "json_object"}),
    "user": ("me", 5),
    "metadata": ({"a": "b"}, {"a": 1}),
    "safety_identifier": ("x", []),
    "prompt_cache_key": ("x", 1),
    "service_tier": ("auto", "flex"),
    "store": (False, True),
}
COMPLETION_ONLY = {
    "best_of": (1, 2),
    "echo": (False, True),
    "logprobs": (None, 1),
    "suffix": ("", "x"),
}
CHAT_ONLY = {
    "audio": (None, {"voice": "x"}),
    "function_call": ("none", "auto"),
    "functions": ([], [{}]),
    "logprobs": (False, True),
    "modalities": (["text"], ["audio"]),
    "moderation": (None, {}),
    "parallel_tool_calls": (True, 1),
    "prediction": (None, {}),
    "prompt_cache_options": (None, {}),
    "prompt_cache_retention": (None, "24h"),
    "reasoning_effort": ("none", "low"),
    "tool_choice": ("none", "required"),
    "tools": ([], [{"type": "function"}]),
    "top_logprobs": (0, 1),
    "verbosity": (None, "low"),
    "web_search_options": (None, {}),
}
NEUTRAL_CASES = [
    *((completion, name, *values) for name, values in (BOTH | COMPLETION_ONLY).items()),
    *((chat, name, *values) for name, values in (BOTH | CHAT_ONLY).items()),
]


@pytest.mark.parametrize(("parse", "name", "neutral", "other"), NEUTRAL_CASES)
def test_fields_not_honoured_yet(parse: Any, name: str, neutral: Any, other: Any) -> None:
    assert parse(**{name: neutral}) == parse(**{name: None}) == parse()
    error = refusal(parse, **{name: other})
    assert error.field == name
    assert str(error).startswith(f"{name} is not supported yet, so it must be left out or be ")
    assert str(error).endswith(f"; got {json.dumps(other)}")


def test_true_is_not_one() -> None:
    assert refusal(completion, n=True).field == "n"
    assert refusal(completion, echo=0).field == "echo"


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


def test_roles_and_parts_of_messages() -> None:
    parsed = chat(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}] * 2},
            {"role": "assistant", "content": "b", "refusal": None, "tool_calls": []},
        ]
    )
    assert [message.for_template() for message in parsed.messages] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "aa"},
        {"role": "assistant", "content": "b"},
    ]


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ("hello", "messages"),
        ({}, "messages"),
        (["hello"], "messages[0]"),
        ([{"content": "a"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "tool", "content": "a"}], "messages[0].role"),
        ([*HELLO, {"role": "user", "content": None}], "messages[1].content"),
        ([{"role": "user", "content": "\ud800"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content"),
        ([{"role": "user", "content": "a", "name": "Bob"}], "messages[0].name"),
        ([{"role": "user", "content": "a", "mood": "x"}], "messages[0].mood"),
        ([{"role": "user", "content": "a", "tool_calls": [{}]}], "messages[0].tool_calls"),
    ],
)
def test_bad_messages(messages: object, field: str) -> None:
    assert refusal(chat, messages=messages).field == field


def test_names_of_the_chat_limit() -> None:
    assert refusal(chat, max_completion_tokens=0).field == "max_completion_tokens"
    assert refusal(chat, max_tokens=0).field == "max_tokens"
    assert refusal(chat, max_tokens=3, max_completion_tokens=4).field == "max_tokens"
    assert refusal(completion, max_completion_tokens=4).field == "max_completion_tokens"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = sorted({*BOTH, *COMPLETION_ONLY, *CHAT_ONLY, *ChatRequest.model_fields, "prompt"})


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
