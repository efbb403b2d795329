"""n choices: each for itself, and together one answer."""

import asyncio
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from engine.errors import EngineFull
from engine.request import FinishReason, TokenDelta
from tests.deployments.api_app import App, assert_error, tokens

FAILED = TokenDelta("", finish_reason=FinishReason.ERROR, error="the grammar is too complex here")


async def test_openai_client_gets_all_choices(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, tokens(tokenizer, "one"), tokens(tokenizer, "two"), [(5, 6, 7)] * 9)
    async with app.openai() as client:
        answer = await client.completions.create(model="tiny", prompt="The", n=3, max_tokens=16)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert [choice.text for choice in answer.choices][:2] == ["one", "two"]
        assert [c.finish_reason for c in answer.choices] == ["stop", "stop", "length"]
        assert answer.usage is not None
        prompt_tokens = len(tokenizer("The")["input_ids"])
        new_tokens = [len(tokens(tokenizer, word)) - 1 for word in ("one", "two")]
        assert answer.usage.prompt_tokens == prompt_tokens
        assert answer.usage.completion_tokens == sum(new_tokens) + 16
        assert answer.usage.total_tokens == prompt_tokens + sum(new_tokens) + 16
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 3

        texts = {0: "", 1: "", 2: ""}
        reasons = {}
        stream = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hello"}],
            n=3,
            max_tokens=16,
            stream=True,
            stream_options={"include_usage": True},
        )
        opened: list[int] = []
        async for chunk in stream:
            for choice in chunk.choices:
                if choice.delta.role:
                    opened.append(choice.index)
                assert choice.index in opened
                texts[choice.index] += choice.delta.content or ""
                reasons[choice.index] = choice.finish_reason
        assert sorted(opened) == [0, 1, 2]
        assert (texts[0], texts[1]) == ("one", "two")
        assert reasons == {0: "stop", 1: "stop", 2: "length"}
        assert chunk.choices == []
        assert chunk.usage is not None
        assert chunk.usage.completion_tokens == answer.usage.completion_tokens


async def test_each_choice_is_a_request_with_a_seed_of_its_own(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    app = App(tokenizer, tokens(tokenizer, "a"))
    await app.completion(n=3, seed=5, priority=-2, prompt_logprobs=1)
    await app.completion(n=1, seed=5)
    await app.completion(n=2, seed=6)
    first, second, third, alone, other, neighbour = app.loop.requests
    assert first.sampling.seed == alone.sampling.seed == 5
    seeds = [r.sampling.seed for r in (first, second, third, other, neighbour)]
    assert len(set(seeds)) == 5
    assert all(seed is not None and -(2**63) <= seed < 2**63 for seed in seeds)
    assert len({r.request_id for r in app.loop.requests}) == 6
    assert [r.priority for r in (first, third, alone)] == [-2, -2, 0]
    assert first.sampling.prompt_logprobs == 1
    assert second.sampling.prompt_logprobs is None
    app.loop.requests.clear()
    await app.completion(n=2)
    assert [r.sampling.seed for r in app.loop.requests] == [None, None]


async def test_a_stop_string_ends_its_choice_alone(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, tokens(tokenizer, "one, two, three"), tokens(tokenizer, "four five"))
    answer = await app.completion(n=2, stop=",", max_tokens=40)
    assert [choice["text"] for choice in answer["choices"]] == ["one", "four five"]
    assert app.loop.aborted == [app.loop.requests[0].request_id]


async def test_the_last_choice_to_stop_ends_the_engines_work(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    endless = [*tokens(tokenizer, "a,")[:-2], asyncio.Event()]
    app = App(tokenizer, tokens(tokenizer, "b"), endless)
    answer = await app.completion(n=2, stop=",", max_tokens=40)
    assert [choice["text"] for choice in answer["choices"]] == ["b", "a"]
    assert app.loop.num_open == 0


@pytest.mark.parametrize("fields", [{}, {"n": 2}])
async def test_a_failed_choice_fails_the_request(
    tokenizer: PreTrainedTokenizerFast, fields: dict[str, Any]
) -> None:
    app = App(tokenizer, [FAILED], tokens(tokenizer, "four five"))
    for stream in (False, True):
        body = {"model": "tiny", "prompt": "The", "stream": stream} | fields
        response = await app.post("/v1/completions", json=body)
        assert_error(response, 500, "generation_failed", None, "the grammar is too complex here")
    assert app.loop.num_open == 0


async def test_a_failure_within_a_stream_is_an_event(tokenizer: PreTrainedTokenizerFast) -> None:
    gate = asyncio.Event()
    app = App(tokenizer, [*tokens(tokenizer, "a")[:1], gate, FAILED])
    async with app.openai() as client:
        stream = await client.completions.create(model="tiny", prompt="The", stream=True)
        assert (await anext(stream)).choices[0].text == "a"
        gate.set()
        with pytest.raises(Exception, match="the grammar is too complex here"):
            await anext(stream)


async def test_a_full_engine_takes_none_of_them(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, [EngineFull("full")])
    response = await app.post("/v1/completions", json={"model": "tiny", "prompt": "a", "n": 2})
    assert_error(response, 503, "engine_full", None, "full")
