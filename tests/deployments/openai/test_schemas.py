"""Every field of a request is honoured, or refused by name with its value."""

from typing import Any

import pytest

from deployments.openai.schemas import ChatRequest, CompletionRequest
from deployments.tools.messages import messages_for_template
from engine.errors import RequestError
from engine.request import SamplingParams
from tests.deployments.requests import HELLO, chat, completion, refusal


@pytest.mark.parametrize("parse", [completion, chat])
def test_every_sampling_field_is_honoured(parse: Any) -> None:
    request = parse(
        max_tokens=7,
        min_tokens=2,
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.25,
        presence_penalty=-2,
        frequency_penalty=1.5,
        repetition_penalty=1.25,
        logit_bias={"5": -100, "17": 0.5},
        seed=-5,
        stop_token_ids=[4, 2],
        ignore_eos=True,
        prompt_logprobs=0,
        speculation={"max_draft_tokens": 2},
    )
    assert request.sampling(room=100, bad_words=((1, 2),)) == SamplingParams(
        max_tokens=7,
        min_tokens=2,
        temperature=0.0,
        top_p=0.5,
        top_k=3,
        min_p=0.25,
        presence_penalty=-2.0,
        frequency_penalty=1.5,
        repetition_penalty=1.25,
        logit_bias=((5, -100.0), (17, 0.5)),
        bad_words=((1, 2),),
        seed=-5,
        stop_token_ids=(4, 2),
        ignore_eos=True,
        prompt_logprobs=0,
        max_draft_tokens=2,
    )


def test_logprobs_of_the_two_endpoints() -> None:
    assert completion(logprobs=0).sampling(9).logprobs == 0
    assert completion(logprobs=3).sampling(9).prompt_logprobs is None
    assert completion(logprobs=3, echo=True).sampling(9).prompt_logprobs == 3
    assert completion(logprobs=3, echo=True, prompt_logprobs=5).sampling(9).prompt_logprobs == 5
    assert chat(logprobs=True).sampling(9).logprobs == 0
    assert chat(logprobs=True, top_logprobs=20).sampling(9).logprobs == 20
    assert chat(logprobs=False, top_logprobs=0).sampling(9).logprobs is None


def test_top_k_of_all_tokens_has_two_names() -> None:
    assert completion(top_k=-1).sampling(9).top_k == completion(top_k=0).sampling(9).top_k == 0


def test_a_promise_of_tokens_ends_with_the_room() -> None:
    sampling = completion(min_tokens=9, max_tokens=12).sampling(room=5)
    assert (sampling.min_tokens, sampling.max_tokens) == (5, 5)


def test_nothing_but_the_prompt_needs_one_token_of_the_engine() -> None:
    request = completion(max_tokens=0, echo=True)
    assert request.is_prompt_only
    assert request.sampling(9).max_tokens == 1
    assert refusal(completion, max_tokens=0).field == "max_tokens"
    assert refusal(completion, max_tokens=0, echo=True, min_tokens=1).field == "min_tokens"


def test_best_of_says_what_n_says() -> None:
    assert completion(n=3, best_of=3).num_choices == 3
    assert completion(best_of=1).num_choices == 1
    assert str(refusal(completion, n=2, best_of=3)).startswith("best_of must be the same as n (2)")
    assert refusal(completion, best_of=2).field == "best_of"
    assert "is not a field" in str(refusal(chat, best_of=1))


def test_defaults_are_those_of_openai() -> None:
    sampling = completion().sampling(room=100)
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (16, 1.0, 1.0)
    assert (sampling.seed, sampling.top_k, sampling.max_draft_tokens) == (None, 0, None)
    assert chat().sampling(room=100).max_tokens == 100


@pytest.mark.parametrize(
    "name",
    [
        *("max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stop_token_ids"),
        *("stream", "stream_options", "speculation", "min_tokens", "min_p", "n", "priority"),
        *("cache_salt",),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
        *("bad_words", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens"),
        *("logprobs", "prompt_logprobs", "response_format", "structured_outputs"),
    ],
)
def test_null_means_left_out(name: str) -> None:
    assert completion(**{name: None}) == completion()
    assert chat(**{name: None}) == chat()


def test_max_tokens_is_cut_to_the_room_there_is() -> None:
    assert completion(max_tokens=10**30).sampling(room=5).max_tokens == 5
    assert chat(max_completion_tokens=9).sampling(room=5).max_tokens == 5
    assert chat(max_completion_tokens=3).sampling(room=5).max_tokens == 3
    assert chat(max_completion_tokens=3, max_tokens=3).sampling(room=5).max_tokens == 3


def test_numbers_larger_than_any_tensor_holds_are_cut() -> None:
    sampling = completion(top_k=10**30, speculation={"max_draft_tokens": 10**30}).sampling(5)
    assert sampling.top_k == 2**31 - 1
    assert sampling.max_draft_tokens == 16


@pytest.mark.parametrize("parse", [completion, chat])
@pytest.mark.parametrize(
    ("speculation", "limit"),
    [
        (None, None),
        ({}, None),
        ({"max_draft_tokens": None}, None),
        ({"max_draft_tokens": 0}, 0),
        ({"max_draft_tokens": 3}, 3),
    ],
)
def test_a_limit_of_draft_tokens_is_honoured_and_zero_is_one(
    parse: Any, speculation: object, limit: int | None
) -> None:
    assert parse(speculation=speculation).sampling(room=5).max_draft_tokens == limit


@pytest.mark.parametrize(
    ("prompt", "parsed"),
    [
        ("a", ("a",)),
        (["a"], ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2]], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
        ("\0", ("\0",)),
    ],
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
        (None, "prompt must be a string or a list of token ids, or several of these, got null"),
        (["a", ""], 'prompt must not be empty, got ["a", ""]'),
        ([[1], []], "prompt must not be empty, got [[1], []]"),
        ([["a"]], "prompt must be a string or a list of token ids, or several of these, got"),
        ([[[1]]], "prompt must be a string or a list of token ids, or several of these, got"),
        ([1, "a"], "prompt must be a string or a list of token ids"),
        ([True], "prompt must be a string or a list of token ids, or several of these, got [true]"),
        ([1.0], "prompt must be a string or a list of token ids, or several of these, got [1.0]"),
        (
            {"a": 1},
            'prompt must be a string or a list of token ids, or several of these, got {"a": 1}',
        ),
        ("\ud800", "prompt must be valid Unicode"),
    ],
)
def test_bad_prompts(prompt: object, complaint: str) -> None:
    error = refusal(completion, prompt=prompt)
    assert error.field == "prompt"
    assert str(error).startswith(complaint)


def test_prompts_times_choices_have_a_limit() -> None:
    assert len(completion(prompt=["a"] * 64, n=2).prompt) == 64
    error = refusal(completion, prompt=["a"] * 65, n=2)
    assert error.field == "prompt"
    assert str(error) == "prompt must hold at most 64 prompts with n 2 (128 choices), got 65"
    assert refusal(completion, prompt=["a", "b"], n=129).field == "n"


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
        ({"top_k": -2}, "top_k must be -1 or 0 (all), or more, got -2"),
        ({"min_p": 1.1}, "min_p must be between 0 and 1, got 1.1"),
        ({"min_p": -0.1}, "min_p must be between 0 and 1, got -0.1"),
        ({"presence_penalty": 2.1}, "presence_penalty must be between -2 and 2, got 2.1"),
        ({"frequency_penalty": -2.1}, "frequency_penalty must be between -2 and 2, got -2.1"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0 and finite, got 0"),
        ({"min_tokens": -1}, "min_tokens must be between 0 and max_tokens ("),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens must be between 0 and max_tokens (5)"),
        ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias must have at most 1024"),
        ({"bad_words": ["x"] * 513}, "bad_words must have at most 512 strings"),
        ({"logit_bias": {"5": 100.5}}, "logit_bias must have numbers between -100 and 100"),
        ({"logit_bias": {"5": -101}}, "logit_bias must have numbers between -100 and 100"),
        ({"logit_bias": {"5": True}}, "logit_bias must have numbers between -100 and 100"),
        ({"logit_bias": {"5": float("nan")}}, "logit_bias must have numbers between"),
        ({"logit_bias": {"05": 1}}, "logit_bias must have token ids as keys"),
        ({"logit_bias": {"-1": 1}}, "logit_bias must have token ids as keys"),
        ({"logit_bias": {"cat": 1}}, "logit_bias must have token ids as keys"),
        ({"logit_bias": {5: 1}}, "logit_bias must have token ids as keys"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias must have token ids as keys"),
        ({"logit_bias": [5]}, "logit_bias must be an object"),
        ({"bad_words": [""]}, 'bad_words must not hold an empty string, got [""]'),
        ({"bad_words": "cat"}, 'bad_words must be a list of strings, got "cat"'),
        ({"bad_words": [5]}, "bad_words must be a list of strings, got [5]"),
        ({"n": 0}, "n must be between 1 and 128, got 0"),
        ({"n": 129}, "n must be between 1 and 128, got 129"),
        ({"n": True}, "n must be a whole number, got true"),
        ({"prompt_logprobs": 21}, "prompt_logprobs must be between 0 and 20, got 21"),
        ({"prompt_logprobs": -1}, "prompt_logprobs must be between 0 and 20, got -1"),
        ({"ignore_eos": 1}, "ignore_eos must be true or false, got 1"),
        ({"skip_special_tokens": 0}, "skip_special_tokens must be true or false, got 0"),
        ({"include_stop_str_in_output": "a"}, "include_stop_str_in_output must be true or false"),
        ({"priority": 1.5}, "priority must be a whole number, got 1.5"),
        (
            {"ignore_eos": True, "response_format": {"type": "json_object"}},
            "ignore_eos must be false with response_format",
        ),
        ({"seed": 2**63}, f"seed must be from -2^63 to 2^63 - 1, got {2**63}"),
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
            "stream_options.include_obfuscation is not supported",
        ),
        (
            {"speculation": {"max_draft_tokens": -1}},
            "speculation.max_draft_tokens must be 0 or more, got -1",
        ),
        (
            {"speculation": {"max_draft_tokens": True}},
            "speculation.max_draft_tokens must be a whole number, got true",
        ),
        (
            {"speculation": {"max_draft_tokens": 2.0}},
            "speculation.max_draft_tokens must be a whole number, got 2.0",
        ),
        (
            {"speculation": {"max_draft_tokens": "2"}},
            'speculation.max_draft_tokens must be a whole number, got "2"',
        ),
        ({"speculation": {"k": 1}}, "speculation.k is not a field of this request"),
        ({"speculation": 2}, "speculation must be an object, got 2"),
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


@pytest.mark.parametrize(
    ("parse", "fields", "complaint"),
    [
        (completion, {"logprobs": 21}, "logprobs must be between 0 and 20, got 21"),
        (completion, {"logprobs": -1}, "logprobs must be between 0 and 20, got -1"),
        (completion, {"logprobs": True}, "logprobs must be a whole number, got true"),
        (completion, {"echo": 1}, "echo must be true or false, got 1"),
        (completion, {"top_logprobs": 1}, "top_logprobs is not a field of this request"),
        (completion, {"echo": True, "logprobs": 5, "prompt_logprobs": -1}, "prompt_logprobs must"),
        (chat, {"logprobs": 5}, "logprobs must be true or false, got 5"),
        (chat, {"top_logprobs": 5}, "top_logprobs needs logprobs to be true, got 5"),
        (chat, {"logprobs": True, "top_logprobs": 21}, "top_logprobs must be between 0 and 20"),
        (chat, {"logprobs": True, "top_logprobs": -1}, "top_logprobs must be between 0 and 20"),
        (chat, {"echo": False}, "echo is not a field of this request"),
    ],
)
def test_bad_values_of_one_endpoint(parse: Any, fields: dict[str, Any], complaint: str) -> None:
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
    assert messages_for_template(parsed.messages, None) == [
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
        ([{"role": "owner", "content": "a"}], "messages[0].role"),
        ([{"role": "tool", "content": "a"}], "messages[0].tool_call_id"),
        ([*HELLO, {"role": "user", "content": None}], "messages[1].content"),
        ([{"role": "user", "content": "\ud800"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content"),
        ([{"role": "user", "content": "a", "name": "Bob"}], "messages[0].name"),
        ([{"role": "user", "content": "a", "mood": "x"}], "messages[0].mood"),
        ([{"role": "user", "content": "a", "tool_calls": [{}]}], "messages[0].tool_calls[0].id"),
    ],
)
def test_bad_messages(messages: object, field: str) -> None:
    assert refusal(chat, messages=messages).field == field


def test_names_of_the_chat_limit() -> None:
    assert refusal(chat, max_completion_tokens=0).field == "max_completion_tokens"
    assert refusal(chat, max_tokens=0).field == "max_tokens"
    assert refusal(chat, max_tokens=3, max_completion_tokens=4).field == "max_tokens"
    assert refusal(completion, max_completion_tokens=4).field == "max_completion_tokens"
