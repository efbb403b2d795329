"""Calls that go on elsewhere: over replicas that count, and die as they are told."""

import asyncio
import dataclasses
from contextlib import aclosing
from typing import Any

import pytest

from deployments.failover.replies import Died
from deployments.failover.source import FailoverSource
from deployments.failover.tries import MOST_DEATHS
from deployments.generation.errors import DeadlinePassed
from deployments.service import GenerationService
from engine.errors import (
    EngineDead,
    EngineFull,
    GrammarError,
    OverShare,
    PacelineError,
    RequestError,
)
from engine.request import FinishReason, Request, SamplingParams, TokenDelta
from tests.deployments.fake_replicas import FIRST_TOKEN, FakeReplica, FakeReplicas, no_grammar
from tests.tiny_tokenizer import byte_level_tokenizer

MAX_WAIT_S = 20.0
MAX_TOKENS = 9
ALL = tuple(range(FIRST_TOKEN, FIRST_TOKEN + MAX_TOKENS))


def request(name: str = "r", **sampling: Any) -> Request:
    return Request(name, (1, 2, 3), SamplingParams(max_tokens=MAX_TOKENS, **sampling))


class Setup:
    """Replicas, and a clock that pauses move."""

    def __init__(self, *replicas: FakeReplica) -> None:
        self.replicas = FakeReplicas(*replicas)
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.source = FailoverSource(
            self.replicas,
            no_grammar,
            max_wait_s=MAX_WAIT_S,
            clock=lambda: self.now_s,
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def deltas(self, *requests: Request) -> list[TokenDelta]:
        async with asyncio.timeout(10):
            return [delta async for delta in self.source.generate(*(requests or (request(),)))]

    @property
    def asked(self) -> list[str]:
        return [name for name, _ in self.replicas.calls]


def tokens_of(deltas: list[TokenDelta], name: str = "r") -> tuple[int, ...]:
    return tuple(token for d in deltas if d.request_id == name for token in d.token_ids)


async def test_one_hop_where_nothing_happens() -> None:
    setup = Setup(FakeReplica("a"), FakeReplica("b"))
    deltas = await setup.deltas()
    assert tokens_of(deltas) == ALL
    assert deltas[-1].finish_reason is FinishReason.LENGTH
    assert setup.asked == ["a"]
    assert setup.replicas.num_open == 0


@pytest.mark.parametrize("death", ["exception", "end", "told"])
@pytest.mark.parametrize("dies_after", [0, 2, 4, 8])
async def test_another_goes_on_where_one_dies(dies_after: int, death: str) -> None:
    first = FakeReplica("a", dies_after=dies_after)
    first.death = {"exception": first.death, "end": None, "told": Died("a step failed")}[death]
    setup = Setup(first, FakeReplica("b"))
    deltas = await setup.deltas()
    assert tokens_of(deltas) == ALL
    assert [d.finish_reason for d in deltas][-1] is FinishReason.LENGTH
    assert setup.asked == ["a", "b"]
    (sent,) = setup.replicas.calls[1][1]
    assert sent.generated_token_ids == ALL[:dies_after]


async def test_every_try_has_the_seed_of_the_first_and_an_id_of_its_own() -> None:
    setup = Setup(*(FakeReplica(name, dies_after=2) for name in "abc"), FakeReplica("d"))
    assert tokens_of(await setup.deltas()) == ALL
    sent = [one for _, (one,) in setup.replicas.calls]
    assert len({one.sampling.seed for one in sent}) == 1
    assert sent[0].sampling.seed is not None
    assert len({one.request_id for one in sent}) == 4


async def test_counts_of_all_tries_add_up() -> None:
    setup = Setup(FakeReplica("a", dies_after=4), FakeReplica("b"))
    deltas = await setup.deltas()
    assert sum(d.num_drafted for d in deltas) == 3 * len(deltas)
    assert sum(d.num_accepted for d in deltas) == MAX_TOKENS - len(deltas)


async def test_of_a_group_only_those_that_are_open_go_on() -> None:
    short = dataclasses.replace(request("s"), sampling=SamplingParams(max_tokens=2))
    setup = Setup(FakeReplica("a", dies_after=4), FakeReplica("b"))
    deltas = await setup.deltas(request(), short)
    assert tokens_of(deltas) == ALL
    assert tokens_of(deltas, "s") == ALL[:2]
    assert len(setup.replicas.calls[1][1]) == 1


async def test_the_prompts_log_probabilities_are_told_once() -> None:
    setup = Setup(FakeReplica("a", dies_after=2), FakeReplica("b"))
    deltas = await setup.deltas(request(prompt_logprobs=1))
    told = [entry.token_id for delta in deltas for entry in delta.prompt_logprobs]
    assert told == [2, 3]
    assert setup.replicas.calls[1][1][0].sampling.prompt_logprobs is None


async def test_log_probabilities_of_a_part_of_the_prompt_are_not_told_again() -> None:
    setup = Setup(FakeReplica("a", dies_after=0), FakeReplica("b"))
    source = setup.source
    asked = request(prompt_logprobs=1)
    whole = [d async for d in Setup(FakeReplica("c")).source.generate(asked)]
    part = whole[0]._replace(token_ids=(), prompt_logprobs=whole[0].prompt_logprobs[:1])

    async def first_part(requests: tuple[Request, ...]) -> Any:
        from deployments.failover.replies import Reached

        yield Reached("a")
        yield (part._replace(request_id=requests[0].request_id, finish_reason=None),)
        setup.replicas.replicas[0].is_dead = True

    setup.replicas.replicas[0].replies = first_part  # type: ignore[method-assign]
    deltas = [d async for d in source.generate(asked)]
    told = [entry.token_id for delta in deltas for entry in delta.prompt_logprobs]
    assert told == [2, 3]
    assert tokens_of(deltas) == ALL


async def test_a_request_that_kills_whoever_takes_it_does_not_have_them_all() -> None:
    setup = Setup(*(FakeReplica(str(i), dies_after=0) for i in range(MOST_DEATHS + 3)))
    with pytest.raises(EngineDead, match="died with this request"):
        await setup.deltas()
    assert len(setup.asked) == MOST_DEATHS + 1
    assert setup.replicas.num_open == 0


async def test_deaths_between_which_it_gets_on_have_no_bound() -> None:
    dying = [FakeReplica(str(i), dies_after=2) for i in range(MOST_DEATHS + 3)]
    setup = Setup(*dying, FakeReplica("last"))
    asked = dataclasses.replace(request(), sampling=SamplingParams(max_tokens=40))
    assert len(tokens_of(await setup.deltas(asked))) == 40


async def test_all_dead_is_told_after_a_while() -> None:
    setup = Setup(FakeReplica("a", is_dead=True))
    with pytest.raises(EngineDead, match="within 20 s"):
        await setup.deltas()
    assert MAX_WAIT_S / 2 < setup.now_s <= MAX_WAIT_S
    assert len(setup.asked) < 100


async def test_a_replica_that_comes_back_in_time_goes_on() -> None:
    only = FakeReplica("a", dies_after=4)
    setup = Setup(only)

    async def sleep(seconds: float) -> None:
        await Setup.sleep(setup, seconds)
        if setup.now_s > MAX_WAIT_S / 2:
            only.is_dead, only.dies_after = False, None

    setup.source._sleep = sleep
    assert tokens_of(await setup.deltas()) == ALL


async def test_whoever_cannot_be_reached_is_not_waited_for_for_ever() -> None:
    replicas = FakeReplicas(FakeReplica("a", is_unreachable=True))
    source = FailoverSource(replicas, no_grammar, max_wait_s=0.01)
    with pytest.raises(EngineDead, match="no replica"):
        _ = [delta async for delta in source.generate(request())]
    assert replicas.num_open == 0


async def test_a_dead_engine_whose_replica_answers_on_is_passed_over() -> None:
    setup = Setup(FakeReplica("a", refuses=EngineDead("a step failed")), FakeReplica("b"))
    assert tokens_of(await setup.deltas()) == ALL
    assert setup.asked == ["a", "b"]
    assert setup.pauses == [0.0]


async def test_a_full_replica_is_passed_over() -> None:
    setup = Setup(FakeReplica("a", refuses=EngineFull("full", 9)), FakeReplica("b"))
    assert tokens_of(await setup.deltas()) == ALL
    assert setup.asked == ["a", "b"]


@pytest.mark.parametrize("kind", [EngineFull, OverShare])
async def test_full_replicas_refuse_with_the_shortest_wait(kind: type[EngineFull]) -> None:
    setup = Setup(FakeReplica("a", refuses=kind("a", 9)), FakeReplica("b", refuses=kind("b", 4)))
    with pytest.raises(kind) as caught:
        await setup.deltas()
    assert caught.value.retry_s == 4
    assert type(caught.value) is kind
    assert len(setup.asked) == 3
    assert setup.now_s == 0


async def test_what_was_let_in_once_waits_for_room() -> None:
    full: list[PacelineError] = [EngineFull("full", 9) for _ in range(5)]
    setup = Setup(FakeReplica("a", dies_after=4), FakeReplica("b", refusals=full))
    assert tokens_of(await setup.deltas()) == ALL
    assert setup.now_s > 0


@pytest.mark.parametrize("error", [RequestError("prompt", "bad"), GrammarError("bad")])
async def test_what_the_request_is_at_fault_for_is_told_at_once(error: PacelineError) -> None:
    setup = Setup(FakeReplica("a", refuses=error), FakeReplica("b"))
    with pytest.raises(type(error), match="bad"):
        await setup.deltas()
    assert setup.asked == ["a"]


@pytest.mark.parametrize("dies_after", [None, 2])
async def test_closing_ends_the_call_where_it_is(dies_after: int | None) -> None:
    setup = Setup(FakeReplica("a", dies_after=dies_after), FakeReplica("b", stops_after=2))
    setup.replicas.replicas[0].stops_after = 4
    stream = setup.source.generate(request())
    async with aclosing(stream):
        for _ in range(2):
            await anext(stream)
        assert setup.replicas.num_open == 1
    assert setup.replicas.num_open == 0


async def test_an_abort_reaches_the_replica_that_has_it_now() -> None:
    """Of two choices one has found its stop string; the other is completed."""
    setup = Setup(FakeReplica("a", dies_after=2), FakeReplica("b"))
    heard: list[TokenDelta] = []
    async for delta in setup.source.generate(request("x"), request("y")):
        heard.append(delta)
        if len(tokens_of(heard, "x")) == 4:
            setup.source.abort("x")
    assert tokens_of(heard, "x") == ALL[:4]
    assert tokens_of(heard, "y") == ALL
    (aborted,) = setup.replicas.replicas[-1].aborted
    assert aborted == setup.replicas.calls[1][1][0].request_id


async def test_an_aborted_choice_is_not_gone_on_with() -> None:
    setup = Setup(FakeReplica("a", dies_after=4), FakeReplica("b"))
    heard: list[TokenDelta] = []
    async for delta in setup.source.generate(request("x"), request("y")):
        heard.append(delta)
        if delta.request_id == "x":
            setup.source.abort("x")
    assert tokens_of(heard, "y") == ALL
    assert [len(sent) for _, sent in setup.replicas.calls] == [2, 1]


# ---- with the text above it


def service_over(setup: Setup) -> GenerationService:
    tokenizer = byte_level_tokenizer()
    return GenerationService(
        setup.source, tokenizer, "tiny", max_model_len=64, vocab_size=len(tokenizer)
    )


async def text_of(setup: Setup, **fields: Any) -> dict[str, Any]:
    service = service_over(setup)
    body = {"model": "tiny", "prompt": "The", "max_tokens": 20, "n": 2, **fields}
    job = await service.prepare_completion(body)
    async with asyncio.timeout(10):
        whole = await service.whole(job)
    return {"choices": whole["choices"], "usage": whole["usage"]}


@pytest.mark.parametrize("dies_after", range(0, 20, 2))
@pytest.mark.parametrize("stop", [None, "kl"])
async def test_text_and_usage_are_those_of_an_undisturbed_answer(
    dies_after: int, stop: str | None
) -> None:
    undisturbed = await text_of(Setup(FakeReplica("a")), stop=stop)
    expected = "abcdefghij" if stop else "abcdefghijklmnopqrst"
    assert [choice["text"] for choice in undisturbed["choices"]] == [expected] * 2
    broken = Setup(FakeReplica("a", dies_after=dies_after), FakeReplica("b"))
    assert await text_of(broken, stop=stop) == undisturbed


async def test_several_prompts_outlive_a_replica() -> None:
    fields = {"prompt": ["The", [5, 6]], "n": 1, "echo": True, "logprobs": 1}
    undisturbed = await text_of(Setup(FakeReplica("a")), **fields)
    assert len(undisturbed["choices"]) == 2
    broken = Setup(FakeReplica("a", dies_after=7), FakeReplica("b"))
    assert await text_of(broken, **fields) == undisturbed


async def test_a_deadline_ends_a_call_that_waits_for_a_replica() -> None:
    replicas = FakeReplicas(FakeReplica("a", dies_after=4, death=None), FakeReplica("b"))
    replicas.replicas[1].is_unreachable = True
    setup = Setup()
    setup.source = FailoverSource(replicas, no_grammar, max_wait_s=MAX_WAIT_S)
    with pytest.raises(DeadlinePassed):
        await text_of(setup, timeout=0.05)
    assert replicas.num_open == 0
