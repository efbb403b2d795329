"""The Responses API: the official client's requests, typed events, and what is refused."""

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.types.responses import (
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseTextDeltaEvent,
)
from transformers import PreTrainedTokenizerFast

from deployments.openai.responses.schemas import ResponsesRequest
from deployments.openai.responses.translation import translated
from engine.errors import EngineDead
from tests.deployments.api_app import App, assert_error, tokens
from tests.deployments.tools import templates
from tests.tiny_tokenizer import byte_level_tokenizer

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": None,
}
TOOLS: Any = [WEATHER]  # the client's own types know more fields
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
MESSAGE_EVENTS = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
CALL_EVENTS = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


@pytest.fixture(scope="module")
def hermes() -> PreTrainedTokenizerFast:
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = templates.HERMES
    return tokenizer


def app_for(tokenizer: PreTrainedTokenizerFast, text: str) -> App:
    return App(tokenizer, tokens(tokenizer, text), max_model_len=4096)


def chat_of(**fields: Any) -> Any:
    return translated(ResponsesRequest.parse({"model": "m", "input": "hi"} | fields)).chat


async def test_openai_client_gets_a_whole_response(tokenizer: PreTrainedTokenizerFast) -> None:
    app = app_for(tokenizer, "Héllo 🙂")
    async with app.openai() as client:
        response = await client.responses.create(
            model="tiny", input="hello", instructions="Be short.", metadata={"a": "b"}, store=False
        )
        chat = await client.chat.completions.create(
            model="tiny",
            messages=[
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": "hello"},
            ],
        )
    assert response.output_text == "Héllo 🙂"
    assert (response.status, response.error) == ("completed", None)
    assert (response.instructions, response.metadata) == ("Be short.", {"a": "b"})
    assert response.usage is not None
    assert chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == chat.usage.completion_tokens
    assert response.usage.input_tokens_details.cached_tokens == 3
    asked, asked_as_chat = app.loop.requests
    assert asked.prompt_token_ids == asked_as_chat.prompt_token_ids


async def test_openai_client_streams_typed_events(tokenizer: PreTrainedTokenizerFast) -> None:
    async with app_for(tokenizer, "Hello").openai() as client:
        stream = await client.responses.create(model="tiny", input="hello", stream=True)
        events = [event async for event in stream]
    kinds = [event.type for event in events]
    assert list(dict.fromkeys(kinds)) == [
        "response.created",
        "response.in_progress",
        *MESSAGE_EVENTS,
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if isinstance(event, ResponseTextDeltaEvent)]
    assert "".join(deltas) == "Hello"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "Hello"
    assert last.response.usage is not None
    assert last.response.usage.output_tokens == len(tokens(tokenizer, "Hello")) - 1


async def test_events_are_named_and_nothing_follows_the_last(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    app = app_for(tokenizer, "a")
    body = {"model": "tiny", "input": "hello", "stream": True}
    response = await app.post("/v1/responses", json=body)
    for event in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        assert name.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"]
    assert "[DONE]" not in response.text


async def test_text_and_calls_are_items_of_their_own(hermes: PreTrainedTokenizerFast) -> None:
    app = app_for(hermes, f"Wait.\n{CALL}\n{CALL.replace('Oslo', 'Rome')}")
    async with app.openai() as client:
        whole = await client.responses.create(model="tiny", input="hello", tools=TOOLS)
        stream = await client.responses.create(
            model="tiny",
            input="hello",
            tools=TOOLS,
            stream=True,
        )
        events = [event async for event in stream]
    message, *calls = whole.output
    assert message.type == "message"
    assert whole.output_text == "Wait."
    for call, city in zip(calls, ("Oslo", "Rome"), strict=True):
        assert call.type == "function_call"
        assert call.name == "get_weather"
        assert json.loads(call.arguments) == {"city": city}
        assert call.call_id != call.id
    last = events[-1]
    assert last.type == "response.completed"
    streamed = [item.model_dump(exclude={"id", "call_id"}) for item in last.response.output]
    assert streamed == [item.model_dump(exclude={"id", "call_id"}) for item in whole.output]
    for place, kinds in enumerate((MESSAGE_EVENTS, CALL_EVENTS, CALL_EVENTS)):
        of_item = [e.type for e in events if getattr(e, "output_index", None) == place]
        assert list(dict.fromkeys(of_item)) == kinds
    done = [e for e in events if isinstance(e, ResponseFunctionCallArgumentsDoneEvent)]
    assert [json.loads(event.arguments)["city"] for event in done] == ["Oslo", "Rome"]


async def test_a_conversation_with_calls_goes_back_in(hermes: PreTrainedTokenizerFast) -> None:
    app = app_for(hermes, f"Wait.\n{CALL}")
    async with app.openai() as client:
        first = await client.responses.create(model="tiny", input="hello", tools=TOOLS)
        call = first.output[1]
        assert call.type == "function_call"
        returned: list[Any] = [item.model_dump() for item in first.output]
        await client.responses.create(
            model="tiny",
            input=[
                {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
                *returned,
                {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"},
            ],
        )
    prompt = hermes.decode(list(app.loop.requests[1].prompt_token_ids))
    assert prompt.index("hello") < prompt.index("Wait.") < prompt.index("Oslo")
    assert prompt.index("Oslo") < prompt.index("12 degrees")


async def test_an_answer_cut_off_is_incomplete(tokenizer: PreTrainedTokenizerFast) -> None:
    async with app_for(tokenizer, "Hello").openai() as client:
        whole = await client.responses.create(model="tiny", input="a", max_output_tokens=2)
        stream = await client.responses.create(
            model="tiny", input="a", max_output_tokens=2, stream=True
        )
        events = [event async for event in stream]
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.output[0].type == "message"
    assert whole.output[0].status == "incomplete"
    assert events[-1].type == "response.incomplete"


async def test_an_empty_answer_is_a_message(tokenizer: PreTrainedTokenizerFast) -> None:
    async with app_for(tokenizer, "").openai() as client:
        response = await client.responses.create(model="tiny", input="a")
    assert len(response.output) == 1
    assert response.output_text == ""


async def test_a_stream_that_fails_ends_with_an_error_event(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    app = App(tokenizer, [*tokens(tokenizer, "ab")[:2], EngineDead("gone")], max_model_len=4096)
    async with app.openai() as client:
        stream = await client.responses.create(model="tiny", input="a", stream=True)
        events = [event async for event in stream]
    last = events[-1]
    assert last.type == "error"
    assert (last.code, last.message) == ("engine_dead", "gone")
    assert last.sequence_number == len(events) - 1


def test_formats_and_choices_are_the_chats_own() -> None:
    named = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
    asked = chat_of(text={"format": named, "verbosity": "medium"}).grammar
    assert (asked.spec.kind, json.loads(asked.spec.source)) == ("json_schema", SCHEMA)
    assert chat_of(text={"format": {"type": "json_object"}}).grammar.spec.kind == "json_object"
    assert chat_of(text={"format": {"type": "text"}}).grammar is None
    forced = chat_of(tools=[WEATHER], tool_choice={"type": "function", "name": "get_weather"})
    assert forced.tool_offer.choice.name == "get_weather"
    assert chat_of(tools=[WEATHER], tool_choice="none").tool_offer is None
    sampling = chat_of(temperature=0.5, top_p=0.25, max_output_tokens=7, seed=3).sampling(100)
    assert (sampling.temperature, sampling.top_p) == (0.5, 0.25)
    assert (sampling.max_tokens, sampling.seed) == (7, 3)


CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"store": True}, "store", "not supported"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "not supported"),
        ({"conversation": "c"}, "conversation", "not supported"),
        ({"background": True}, "background", "not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "no built-in tools"),
        ({"tools": [WEATHER | {"name": "a b"}]}, "tools[0].name", "ASCII letters"),
        ({"tools": [WEATHER | {"strict": True}]}, "tools[0].strict", "can be true only where"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", "must be"),
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        ({"include": ["x"]}, "include", "not supported"),
        ({"reasoning": {"effort": "high"}}, "reasoning", "not supported"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "usage always comes"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"temperature": 3}, "temperature", "between 0 and 2"),
        ({"input": []}, "input", "at least one"),
        ({"input": ["x"]}, "input[0]", "must be an object"),
        ({"input": [{"type": "reasoning"}]}, "input[0].type", "must be one of"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", "must be"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content",
            "input_text",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "no", "output": ""}]},
            "input[0].call_id",
            "id of a call",
        ),
        (
            {"instructions": "x", "input": [CALLED | {"arguments": "{"}]},
            "input[0].arguments",
            "JSON object",
        ),
        ({"input": [CALLED, CALLED]}, "input[0]", "an id of its own"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.name", "is required"),
        (
            {"text": {"format": {"type": "text", "name": "x"}}},
            "text.format.name",
            'needs text.format.type "json_schema"',
        ),
        ({"n": 2}, "n", "not a field"),
        ({"timeout": 0}, "timeout", "above 0"),
    ],
)
async def test_what_is_refused_is_named(
    hermes: PreTrainedTokenizerFast, fields: dict[str, Any], param: str, says: str
) -> None:
    body = {"model": "tiny", "input": "hello"} | fields
    response = await app_for(hermes, "a").post("/v1/responses", json=body)
    assert_error(response, 400, "invalid_value", param, says)
    assert "messages[" not in response.json()["error"]["message"]


async def test_another_model_and_a_long_input(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, tokens(tokenizer, "a"))
    response = await app.post("/v1/responses", json={"model": "gpt", "input": "a"})
    assert_error(response, 404, "model_not_found", "model", "is not served here")
    response = await app.post("/v1/responses", json={"model": "tiny", "input": "z1" * 90})
    assert_error(response, 400, "context_length_exceeded", "input", "input has")


async def test_before_the_first_event_an_error_is_a_status(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    app = App(tokenizer, [EngineDead("gone")])
    async with app.openai() as client:
        with pytest.raises(openai.InternalServerError, match="gone"):
            await client.responses.create(model="tiny", input="a", stream=True)


async def test_closing_the_stream_ends_the_work(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, [*tokens(tokenizer, "a")[:1], asyncio.Event()], max_model_len=4096)
    async with app.openai() as client:
        stream = await client.responses.create(model="tiny", input="a", stream=True)
        await anext(aiter(stream))
        await stream.close()
        await app.loop.closed.wait()
    assert app.loop.num_open == 0
