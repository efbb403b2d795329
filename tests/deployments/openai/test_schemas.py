"""Every field of a request is honoured, or refused by name with its value."""

from typing import Any

import pytest

from deployments.openai.schemas import ChatRequest, CompletionRequest
from engine.errors import RequestError
from tests.deployments.requests import HELLO, chat, completion, refusal


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
        ({"seed": 2**63}, f"seed must be within 64 bits, got {2**63}"),
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
