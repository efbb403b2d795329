"""Conversations with calls: checked, and rendered by templates as the families have them."""

from typing import Any

import pytest

from deployments.tools.families import HERMES, LLAMA, MISTRAL, Family, family_of
from deployments.tools.messages import messages_for_template
from tests.deployments.tools import templates
from tests.deployments.tools.tool_requests import (
    NOW,
    WEATHER,
    call,
    messages_of,
    refusal,
    some_offer,
)
from tests.tiny_tokenizer import byte_fallback_tokenizer, byte_level_tokenizer

USER = {"role": "user", "content": "Hot?"}
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [call("call_1", "get_weather", '{"city": "Orléans", "days": 2}')],
}
ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": '{"degrees": 31}'}
ASKS_TWICE = {
    "role": "assistant",
    "content": "Both.",
    "tool_calls": [call("call_1", "get_weather", '{"city": "Rome"}'), call("call_2", "now", "")],
}
SECOND_ANSWER = {"role": "tool", "tool_call_id": "call_2", "content": "12"}


def rendered(template: str, *messages: dict[str, Any], tokenizer: Any = None) -> str:
    tokenizer = tokenizer or byte_level_tokenizer()
    tokenizer.chat_template = template
    family = family_of(tokenizer.get_chat_template(tools=[{}]))
    text = tokenizer.apply_chat_template(
        messages_for_template(messages_of(*messages), family),
        tools=some_offer(tools=[WEATHER, NOW]).for_template(),
        tokenize=False,
        add_generation_prompt=True,
    )
    assert isinstance(text, str)
    return text


def test_hermes() -> None:
    text = rendered(templates.HERMES, {"role": "developer", "content": "Be brief."}, USER)
    assert text.startswith("<|im_start|>system\nBe brief.\nFunctions you may use:\n<tools>\n{")
    assert '"name": "get_weather", "description": "Weather of a city."' in text
    text = rendered(templates.HERMES, USER, ASKS, ANSWER)
    assert text.endswith(
        "<|im_start|>user\nHot?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Orléans", "days": 2}}\n</tool_call>'
        '<|im_end|>\n<|im_start|>tool\n<tool_response>\n{"degrees": 31}\n</tool_response>'
        "<|im_end|>\n<|im_start|>assistant\n"
    )
    text = rendered(templates.HERMES, USER, ASKS_TWICE, ANSWER, SECOND_ANSWER)
    assert (
        '<|im_start|>assistant\nBoth.\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Rome"}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n'
        "</tool_call><|im_end|>\n"
    ) in text


def test_a_template_that_walks_through_properties_and_names_results() -> None:
    text = rendered(templates.HERMES_SIGNATURES, USER, ASKS_TWICE, SECOND_ANSWER, ANSWER)
    assert text.startswith("get_weather(city days ) - Weather of a city.\nnow() - \n")
    assert text.endswith(
        '{"name": "now", "content": "12"}\n'
        '{"name": "get_weather", "content": "{\\"degrees\\": 31}"}\n'
    )


def test_llama() -> None:
    text = rendered(templates.LLAMA, USER, ASKS, ANSWER, tokenizer=byte_fallback_tokenizer())
    assert '"description": "Weather of a city."' in text
    assert text.endswith(
        "<|start_header_id|>user<|end_header_id|>\n\nHot?<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "get_weather", "parameters": '
        '{"city": "Orléans", "days": 2}}<|eot_id|>'
        '<|start_header_id|>ipython<|end_header_id|>\n\n"{\\"degrees\\": 31}"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


@pytest.mark.parametrize("answers", [(ANSWER, SECOND_ANSWER), (SECOND_ANSWER, ANSWER)])
def test_llama_gets_calls_one_by_one(answers: tuple[dict[str, Any], ...]) -> None:
    text = rendered(templates.LLAMA, USER, ASKS_TWICE, *answers, USER)
    calls = text[text.index("assistant<|end") :]
    assert calls.startswith(
        'assistant<|end_header_id|>\n\n{"name": "get_weather", "parameters": {"city": "Rome"}}'
        '<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n"{\\"degrees\\": 31}"<|eot_id|>'
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "now", "parameters": {}}'
        '<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n"12"<|eot_id|>'
        "<|start_header_id|>user<|end_header_id|>"
    )


def test_calls_one_by_one_lose_no_message() -> None:
    late = ANSWER | {"content": "late"}
    messages = messages_of(USER, ASKS_TWICE, SECOND_ANSWER, ASKS_TWICE, late, ANSWER, USER)
    converted = messages_for_template(messages, LLAMA)
    assert [
        message["tool_calls"][0]["id"] if "tool_calls" in message else message["content"]
        for message in converted
    ] == ["Hot?", "call_1", "call_2", "12", "call_1", "late", '{"degrees": 31}', "call_2", "Hot?"]
    assert [message["content"] for message in converted if message["role"] == "assistant"] == [
        *("Both.", "", "Both.", "")
    ]

    other = {"role": "assistant", "tool_calls": [call("a", "now"), call("b", "now")]}
    messages = messages_of(USER, ASKS, other, ANSWER)
    assert messages_for_template(messages, LLAMA)[-1]["content"] == ANSWER["content"]


def test_mistral() -> None:
    text = rendered(templates.MISTRAL, USER, ASKS_TWICE, ANSWER, SECOND_ANSWER)
    first, second = (
        text.split('"id": "')[index].split('"')[0]
        for index in (1, 2)  # of the calls
    )
    assert first != second
    assert f'"arguments": {{"city": "Rome"}}, "id": "{first}"}}, {{"name": "now"' in text
    assert text.endswith(
        f'[TOOL_RESULTS] {{"content": {{"degrees": 31}}, "call_id": "{first}"}}[/TOOL_RESULTS]'
        f'[TOOL_RESULTS] {{"content": 12, "call_id": "{second}"}}[/TOOL_RESULTS]'
    )
    own = {"role": "assistant", "tool_calls": [call("a1B2c3D4e", "now")]}
    assert '"id": "a1B2c3D4e"' in rendered(templates.MISTRAL, USER, own)


@pytest.mark.parametrize("family", [HERMES, LLAMA, MISTRAL, None])
def test_other_messages_are_as_ever(family: Family | None) -> None:
    messages = messages_of(
        {"role": "developer", "content": "a"},
        USER | {"tool_calls": None, "tool_call_id": None},
        {"role": "assistant", "content": "", "tool_calls": []},
    )
    assert messages_for_template(messages, family) == [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "Hot?"},
        {"role": "assistant", "content": ""},
    ]


@pytest.mark.parametrize(
    ("messages", "field"),
    [([USER, ASKS], "messages[1].tool_calls"), ([ASKS, ANSWER], "messages[0].tool_calls")],
)
def test_a_model_that_knows_no_calls_is_given_none(messages: list[Any], field: str) -> None:
    assert refusal(messages_for_template, messages_of(*messages), None).field == field


def assistant(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "x"} | fields


def with_arguments(arguments: object) -> dict[str, Any]:
    return assistant(tool_calls=[call("a", "now", arguments)])


CALLS = "messages[0].tool_calls"
ARGUMENTS = f"{CALLS}[0].function.arguments"


@pytest.mark.parametrize(
    ("messages", "field", "complaint"),
    [
        ([{"role": "user"}], "messages[0].content", "is required"),
        ([{"role": "assistant"}], "messages[0].content", "is required"),
        ([{"role": "assistant", "tool_calls": []}], "messages[0].content", "is required"),
        ([USER | {"tool_calls": [call("a", "now")]}], CALLS, "is for assistant messages only"),
        (
            [USER, ANSWER],
            "messages[1].tool_call_id",
            "must be the id of a call in a message before",
        ),
        ([ASKS, ANSWER | {"tool_call_id": "x"}], "messages[1].tool_call_id", "must be the id of"),
        ([ASKS, ANSWER | {"tool_call_id": None}], "messages[1].tool_call_id", "is required"),
        ([ASKS, ANSWER | {"content": None}], "messages[1].content", "is required"),
        ([USER | {"tool_call_id": "x"}], "messages[0].tool_call_id", "is for tool messages only"),
        (
            [assistant(tool_calls=[call("a", "now"), call("a", "now")])],
            CALLS,
            'must have an id of its own each, got ["a", "a"]',
        ),
        ([assistant(tool_calls="x")], CALLS, "must be a list"),
        ([assistant(tool_calls=[{"type": "function"}])], f"{CALLS}[0].id", "is required"),
        (
            [assistant(tool_calls=[call("\ud800", "now")])],
            f"{CALLS}[0].id",
            "must be valid Unicode",
        ),
        ([assistant(tool_calls=[call("a", "no w")])], f"{CALLS}[0].function.name", "must be 1 to"),
        (
            [assistant(tool_calls=[call("a", "now") | {"type": "x"}])],
            f"{CALLS}[0].type",
            "must be 'function', got \"x\"",
        ),
        ([with_arguments({})], ARGUMENTS, "must be a string (a JSON object as text), got {}"),
        ([with_arguments("[]")], ARGUMENTS, 'must be a JSON object as text, got "[]"'),
        ([with_arguments('{"a":')], ARGUMENTS, "must be a JSON object as text"),
        ([with_arguments('{"a": NaN}')], ARGUMENTS, "must be a JSON object as text"),
        ([with_arguments('{"a": 1, "a": 1}')], ARGUMENTS, "must be a JSON object as text"),
        ([with_arguments('{"a": "\\ud800"}')], ARGUMENTS, "must be valid Unicode"),
        ([with_arguments('"\ud800"')], ARGUMENTS, "must be a JSON object as text"),
        ([with_arguments('{"a":' * 65 + "1" + "}" * 65)], ARGUMENTS, "must be nested at most 64"),
    ],
)
def test_messages_that_are_refused(messages: list[Any], field: str, complaint: str) -> None:
    error = refusal(messages_of, *messages)
    assert error.field == field
    assert str(error).startswith(f"{field} {complaint}")
