"""Each request is told of once, at its end, whatever that was."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from transformers import PreTrainedTokenizerFast

from cluster.metrics.definitions import Outcome
from cluster.metrics.requests import RequestRecord
from deployments.generation.errors import DeadlinePassed
from deployments.service import GenerationService
from engine.errors import EngineDead, EngineFull, RequestError
from engine.request import FinishReason
from tests.deployments.fake_loop import FakeLoop, Step
from tests.tiny_tokenizer import byte_level_tokenizer

BODY = {"model": "tiny", "prompt": "The", "max_tokens": 8}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


class Setup:
    def __init__(self, tokenizer: PreTrainedTokenizerFast, *scripts: Sequence[Step]) -> None:
        self.records: list[RequestRecord] = []
        self.loop = FakeLoop(*scripts)
        self.service = GenerationService(
            self.loop,
            tokenizer,
            "tiny",
            max_model_len=64,
            vocab_size=len(tokenizer),
            tell=self.records.append,
        )

    @property
    def outcomes(self) -> list[Outcome]:
        return [record.outcome for record in self.records]


async def test_a_whole_answer_and_a_streamed_one(tokenizer: PreTrainedTokenizerFast) -> None:
    setup = Setup(tokenizer, [(5,), (6, 7), (1,), FinishReason.STOP])
    await setup.service.whole(await setup.service.prepare_completion(BODY))
    async for _ in setup.service.stream(BODY):
        pass
    assert setup.outcomes == [Outcome.FINISHED] * 2
    for record in setup.records:
        assert record.first_token_s is not None
        assert record.seconds is not None
        assert 0 < record.first_token_s <= record.seconds
        assert len(record.queue_s) == len(record.per_token_s) == 1


async def test_choices_are_one_request(tokenizer: PreTrainedTokenizerFast) -> None:
    setup = Setup(tokenizer, [(5,), (6,), (1,), FinishReason.STOP])
    await setup.service.whole(await setup.service.prepare_completion(BODY | {"n": 3}))
    assert setup.outcomes == [Outcome.FINISHED]
    assert len(setup.records[0].queue_s) == 3


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (EngineFull("full", 1), Outcome.FULL),
        (EngineDead("dead"), Outcome.FAILED),
        (RequestError("n", "too many"), Outcome.INVALID),
    ],
)
async def test_what_the_engine_refuses_or_fails(
    tokenizer: PreTrainedTokenizerFast, error: Exception, outcome: Outcome
) -> None:
    setup = Setup(tokenizer, [error])
    with pytest.raises(type(error)):
        await setup.service.whole(await setup.service.prepare_completion(BODY))
    assert setup.outcomes == [outcome]


async def test_what_is_refused_before_the_engine_sees_it(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    setup = Setup(tokenizer, [(1,)])
    with pytest.raises(RequestError):
        await setup.service.prepare_completion(BODY | {"temperature": -1})
    assert setup.outcomes == [Outcome.INVALID]


async def test_a_client_that_leaves(tokenizer: PreTrainedTokenizerFast) -> None:
    setup = Setup(tokenizer, [(5,), asyncio.Event()])
    async with aclosing(setup.service.stream(BODY)) as chunks:
        await anext(chunks)
        assert setup.records == []
    assert setup.outcomes == [Outcome.GONE]
    assert setup.records[0].first_token_s is not None


async def test_a_client_that_leaves_when_all_is_there(tokenizer: PreTrainedTokenizerFast) -> None:
    setup = Setup(tokenizer, [(5,), (1,), FinishReason.STOP])
    async with aclosing(setup.service.stream(BODY)) as chunks:
        async for chunk in chunks:
            if "'finish_reason': 'stop'" in str(chunk):
                break
    assert setup.outcomes == [Outcome.FINISHED]


async def test_one_whose_time_is_up(tokenizer: PreTrainedTokenizerFast) -> None:
    setup = Setup(tokenizer, [(5,), asyncio.Event()])
    with pytest.raises(DeadlinePassed):
        await setup.service.whole(await setup.service.prepare_completion(BODY, timeout_s=0.05))
    assert setup.outcomes == [Outcome.DEADLINE]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(None, Outcome.DEADLINE), (EngineFull("64 grammars are waiting", 1), Outcome.FULL)],
)
async def test_one_that_ends_while_it_is_prepared(
    tokenizer: PreTrainedTokenizerFast, error: EngineFull | None, outcome: Outcome
) -> None:
    setup = Setup(tokenizer, [(5,)])
    setup.loop.refuses_grammars = error
    if error is None:
        setup.loop.holds_grammars.clear()
    body = BODY | {"structured_outputs": {"regex": "a"}}
    with pytest.raises(DeadlinePassed if error is None else EngineFull):
        await setup.service.prepare_completion(body, timeout_s=0.05 if error is None else None)
    assert setup.outcomes == [outcome]
