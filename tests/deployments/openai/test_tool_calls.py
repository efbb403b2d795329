"""Tools over the API: shown to the model, and its calls in OpenAI's shapes."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from tests.deployments.api_app import CHAT, App, assert_error, tokens
from tests.deployments.tools import templates
from tests.deployments.tools.tool_requests import NAMED_NOW, NOW, WEATHER, call
from tests.tiny_tokenizer import byte_level_tokenizer

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TOOLS = [WEATHER, NOW]


@pytest.fixture(scope="module", params=[False, True], ids=["text markers", "special markers"])
def hermes(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    """Has Hermes' template; its markers are plain text, or special tokens of their own."""
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = templates.HERMES
    if request.param:
        markers = [AddedToken(text, special=True) for text in ("<tool_call>", "</tool_call>")]
        tokenizer.add_tokens(markers, special_tokens=True)
    return tokenizer


def app_for(tokenizer: PreTrainedTokenizerFast, text: str) -> App:
    return App(tokenizer, tokens(tokenizer, text), max_model_len=4096)


async def test_openai_client_gets_calls(hermes: PreTrainedTokenizerFast) -> None:
    app = app_for(hermes, f"{CALL}\n{CALL.replace('Oslo', 'Rome')}")
    async with app.openai() as client:
        answer = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hello"}],
            tools=TOOLS,  # type: ignore[arg-type]
        )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    made = [c.function for c in choice.message.tool_calls if c.type == "function"]
    assert [function.name for function in made] == ["get_weather"] * 2
    assert [json.loads(function.arguments)["city"] for function in made] == ["Oslo", "Rome"]
    assert len({c.id for c in choice.message.tool_calls}) == 2


async def test_openai_client_streams_calls(hermes: PreTrainedTokenizerFast) -> None:
    app = app_for(hermes, f"Wait.\n{CALL}")
    async with (
        app.openai() as client,
        client.chat.completions.stream(
            model="tiny",
            messages=[{"role": "user", "content": "hello"}],
            tools=TOOLS,  # type: ignore[arg-type]
        ) as stream,
    ):
        answer = await stream.get_final_completion()
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Wait.", "tool_calls")
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Oslo"}'
    assert choice.message.tool_calls[0].id.startswith("call_")


async def test_without_a_call_it_is_an_answer_like_any_other(
    hermes: PreTrainedTokenizerFast,
) -> None:
    text = "No. <tool_"  # what may begin a call is held back, and comes at the end
    answer = await app_for(hermes, text).chat(tools=TOOLS)
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}


async def test_a_call_cut_off_is_a_lack_of_room(hermes: PreTrainedTokenizerFast) -> None:
    app = app_for(hermes, CALL)
    answer = await app.chat(tools=TOOLS, max_tokens=len(tokens(hermes, CALL)) - 20)
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_one_call_is_the_end_where_no_more_are_wanted(
    hermes: PreTrainedTokenizerFast,
) -> None:
    app = app_for(hermes, CALL + CALL)
    answer = await app.chat(tools=TOOLS, parallel_tool_calls=False)
    (choice,) = answer["choices"]
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["finish_reason"] == "tool_calls"
    assert answer["usage"]["completion_tokens"] < len(tokens(hermes, CALL))
    assert app.loop.num_open == 0


async def test_tools_and_their_results_stand_in_the_prompt(hermes: PreTrainedTokenizerFast) -> None:
    app = app_for(hermes, "Done.")
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [call("c1", "now")]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ]
    await app.chat(tools=TOOLS, messages=messages)
    await app.chat(tools=TOOLS, messages=messages, tool_choice="none")
    shown, hidden = (hermes.decode(list(r.prompt_token_ids)) for r in app.loop.requests)
    assert "Weather of a city." in shown
    assert "<tool_response>\nnoon" in shown
    assert "Weather of a city." not in hidden


async def test_tools_that_are_off_are_not_parsed(hermes: PreTrainedTokenizerFast) -> None:
    answer = await app_for(hermes, CALL).chat(
        tools=TOOLS, tool_choice="none", skip_special_tokens=False
    )
    assert answer["choices"][0]["message"]["content"] == CALL


async def test_a_forced_call_is_a_grammar(hermes: PreTrainedTokenizerFast) -> None:
    listed = '[{"name": "now", "arguments": {}}]'
    for choice, text in (("required", listed), (NAMED_NOW, "{}")):
        app = app_for(hermes, text)
        answer = await app.chat(tools=TOOLS, tool_choice=choice)
        (made,) = answer["choices"][0]["message"]["tool_calls"]
        assert made["function"] == {"name": "now", "arguments": "{}"}
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        assert app.loop.requests[0].sampling.grammar in app.loop.compiled


async def test_logprobs_of_calls_are_all_tokens(hermes: PreTrainedTokenizerFast) -> None:
    app = app_for(hermes, CALL)
    whole = await app.chat(tools=TOOLS, logprobs=True)
    chunks = await app.chat_chunks(tools=TOOLS, logprobs=True)
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == len(tokens(hermes, CALL)) - 2  # EOS, and how it ended
    assert list(_streamed(chunks)) == content


def _streamed(chunks: Iterable[dict[str, Any]]) -> Iterable[Any]:
    for chunk in chunks:
        (choice,) = chunk["choices"]
        if choice["logprobs"]:
            yield from choice["logprobs"]["content"]


async def test_a_model_without_tools_says_so(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, tokens(tokenizer, "a"))
    response = await app.post("/v1/chat/completions", json=CHAT | {"tools": TOOLS})
    assert_error(response, 400, "invalid_value", "tools", "its chat template takes none")
    await app.chat(tools=TOOLS, tool_choice="none")
    await app.chat(tools=[])
