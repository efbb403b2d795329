"""The service over a scripted engine: text, order, counts, errors and cancellation."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from deployments.generation.choice import ChoiceDelta
from deployments.generation.run import Run
from deployments.service import GenerationService
from deployments.validation import ModelNotFound
from engine.errors import EngineDead, EngineFull, PromptTooLong, RequestError
from engine.request import FinishReason
from tests.deployments.fake_loop import FakeLoop, Step
from tests.tiny_tokenizer import byte_level_tokenizer

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


class Setup:
    def __init__(self, tokenizer: PreTrainedTokenizerFast, *scripts: Sequence[Step]) -> None:
        self.loop = FakeLoop(*scripts)
        self.service = GenerationService(
            self.loop, tokenizer, "tiny", max_model_len=64, vocab_size=len(tokenizer)
        )

    async def run(self, **fields: Any) -> Run:
        job = await self.service.prepare_completion(
            {"model": "tiny", "prompt": "The", "max_tokens": 60} | fields
        )
        return Run(self.loop, job)

    async def deltas(self, **fields: Any) -> list[ChoiceDelta]:
        run = await self.run(**fields)
        return [delta async for delta in run.deltas()]


def ids(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


async def test_text_reason_and_counts(tokenizer: PreTrainedTokenizerFast) -> None:
    words = ids(tokenizer, "The quick brown fox")
    setup = Setup(tokenizer, [words, (1,), FinishReason.STOP])
    run = await setup.run()
    deltas = [delta async for delta in run.deltas()]
    assert "".join(delta.text for delta in deltas) == "The quick brown fox"
    assert deltas[-1].finish_reason == "stop"
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert run.usage.completion_tokens == len(words) + 1
    assert run.usage.prompt_tokens == len(tokenizer("The")["input_ids"])
    assert run.usage.total_tokens == run.usage.prompt_tokens + len(words) + 1
    assert run.usage.prompt_tokens_details.cached_tokens == 3
    assert setup.loop.num_open == 0


async def test_the_first_token_goes_out_alone_and_what_waits_goes_together(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    gate = asyncio.Event()
    a, b, c = (ids(tokenizer, letter) for letter in "abc")
    setup = Setup(tokenizer, [a, gate, b, c, (1,), FinishReason.STOP])
    run = await setup.run()
    async with aclosing(run.deltas()) as deltas:
        assert (await anext(deltas)).text == "a"
        gate.set()
        rest = await anext(deltas)
        assert (rest.text, rest.finish_reason) == ("bc", "stop")


async def test_a_first_token_without_text_is_reported(tokenizer: PreTrainedTokenizerFast) -> None:
    never = asyncio.Event()
    setup = Setup(tokenizer, [ids(tokenizer, "界")[:1], never])
    run = await setup.run()
    async with aclosing(run.deltas()) as deltas:
        assert (await anext(deltas)).text == ""
        assert run.usage.completion_tokens == 1


async def test_a_stop_string_ends_the_engines_work(tokenizer: PreTrainedTokenizerFast) -> None:
    never = asyncio.Event()
    setup = Setup(tokenizer, [ids(tokenizer, "one two"), never])
    deltas = await setup.deltas(stop="e t")
    assert "".join(delta.text for delta in deltas) == "on"
    assert deltas[-1].finish_reason == "stop"
    assert setup.loop.num_open == 0


async def test_max_tokens_reaches_the_engine(tokenizer: PreTrainedTokenizerFast) -> None:
    setup = Setup(tokenizer, [ids(tokenizer, "abcdef")])
    deltas = await setup.deltas(max_tokens=4)
    assert ("".join(d.text for d in deltas), deltas[-1].finish_reason) == ("abcd", "length")


async def test_chat_writes_special_tokens_once(tokenizer: PreTrainedTokenizerFast) -> None:
    setup = Setup(tokenizer, [])
    job = await setup.service.prepare_chat({"model": "tiny", "messages": HELLO})
    prompt = job.requests[0].prompt_token_ids
    assert prompt.count(tokenizer.bos_token_id) == 1
    assert tokenizer.decode(list(prompt)) == "<|bos|><|user|>hello<|end|><|assistant|>"
    assert job.requests[0].sampling.max_tokens == 64 - len(prompt)


async def test_a_plain_prompt_gets_the_tokenizers_special_tokens(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    setup = Setup(tokenizer, [])
    job = await setup.service.prepare_completion({"model": "tiny", "prompt": "The"})
    assert list(job.requests[0].prompt_token_ids) == tokenizer("The")["input_ids"]
    job = await setup.service.prepare_completion({"model": "tiny", "prompt": [5, 6]})
    assert job.requests[0].prompt_token_ids == (5, 6)


async def test_the_context_limit(tokenizer: PreTrainedTokenizerFast) -> None:
    service = Setup(tokenizer, []).service
    body = {"model": "tiny", "max_tokens": 99}
    job = await service.prepare_completion(body | {"prompt": [5] * 63})
    assert job.requests[0].sampling.max_tokens == 1
    with pytest.raises(PromptTooLong, match=r"prompt has 64 tokens.*context limit of 64 tokens"):
        await service.prepare_completion(body | {"prompt": [5] * 64})
    with pytest.raises(PromptTooLong, match="prompt has 20001 tokens"):
        await service.prepare_completion(body | {"prompt": "\0" * 20_000})
    long_messages = [{"role": "user", "content": "abc" * 9000}]
    with pytest.raises(PromptTooLong) as caught:
        await service.prepare_chat({"model": "tiny", "messages": long_messages})
    assert caught.value.field == "messages"


async def test_what_the_model_does_not_have(tokenizer: PreTrainedTokenizerFast) -> None:
    service = Setup(tokenizer, []).service
    with pytest.raises(ModelNotFound, match='model "gpt" is not served here; "tiny" is'):
        await service.prepare_completion({"model": "gpt", "prompt": "a"})
    size = len(tokenizer)
    for body, field in (
        ({"prompt": [0, size]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": "a", "stop_token_ids": [10**30]}, "stop_token_ids"),
    ):
        with pytest.raises(RequestError, match=f"between 0 and {size - 1}") as caught:
            await service.prepare_completion({"model": "tiny"} | body)
        assert caught.value.field == field


@pytest.mark.parametrize(
    "error", [EngineFull("full"), RequestError("seed", "bad"), EngineDead("x")]
)
async def test_errors_before_the_first_token(
    tokenizer: PreTrainedTokenizerFast, error: Exception
) -> None:
    with pytest.raises(type(error)):
        await Setup(tokenizer, [error]).deltas()


async def test_text_before_an_error_is_not_lost(tokenizer: PreTrainedTokenizerFast) -> None:
    setup = Setup(tokenizer, [ids(tokenizer, "a"), EngineDead("a step failed")])
    run = await setup.run()
    async with aclosing(run.deltas()) as deltas:
        assert (await anext(deltas)).text == "a"
        with pytest.raises(EngineDead, match="a step failed"):
            await anext(deltas)


@pytest.mark.parametrize("steps", [[(5,)], [(5,), FinishReason.ABORT], []])
async def test_an_unfinished_request_is_an_error(
    tokenizer: PreTrainedTokenizerFast, steps: list[Step]
) -> None:
    with pytest.raises(EngineDead):
        await Setup(tokenizer, steps).deltas()


async def test_closing_in_mid_stream_ends_the_engines_work(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    setup = Setup(tokenizer, [ids(tokenizer, "a"), asyncio.Event()])
    chunks = setup.service.stream({"model": "tiny", "prompt": "x"})
    await anext(chunks)
    assert setup.loop.num_open == 1
    await chunks.aclose()
    assert setup.loop.num_open == 0


async def test_cancelling_while_waiting_ends_the_engines_work(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    setup = Setup(tokenizer, [asyncio.Event()])
    job = await setup.service.prepare_completion({"model": "tiny", "prompt": "x"})
    waiting = asyncio.create_task(setup.service.whole(job))
    await setup.loop.started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert setup.loop.num_open == 0


async def test_handle_callers_get_chunks_of_either_endpoint(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    service = Setup(tokenizer, [ids(tokenizer, "ab"), (1,), FinishReason.STOP]).service
    texts = [chunk async for chunk in service.stream({"model": "tiny", "prompt": "x"})]
    assert {chunk["object"] for chunk in texts} == {"text_completion"}
    chats = [chunk async for chunk in service.stream({"model": "tiny", "messages": HELLO})]
    assert {chunk["object"] for chunk in chats} == {"chat.completion.chunk"}
    with pytest.raises(RequestError, match="must be a mapping"):
        await anext(service.stream("hello"))  # type: ignore[arg-type]


async def test_many_threads_may_tokenise_at_once(tokenizer: PreTrainedTokenizerFast) -> None:
    service = GenerationService(
        FakeLoop([]), tokenizer, "tiny", max_model_len=10**6, vocab_size=len(tokenizer)
    )
    body = {"model": "tiny", "prompt": "The quick brown fox. " * 2000}
    jobs = await asyncio.gather(*(service.prepare_completion(body) for _ in range(8)))
    assert len({job.requests[0].prompt_token_ids for job in jobs}) == 1
    assert len({job.requests[0].request_id for job in jobs}) == 8
