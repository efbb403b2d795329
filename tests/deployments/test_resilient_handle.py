"""A handle's answers go on elsewhere, chunk by chunk, whatever the endpoint."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from deployments.failover.pieces import Complete, PieceReply, piece_replies
from deployments.failover.resilient_handle import ResilientHandle
from deployments.failover.source import FailoverSource
from deployments.failover.tries import MOST_DEATHS, TryFailed
from deployments.generation.errors import DeadlinePassed
from deployments.generation.origin import Origin
from deployments.generation.run import Told
from deployments.service import GenerationService, Piece
from engine.errors import EngineDead, RequestError
from tests.deployments.fake_replicas import FakeReplica, FakeReplicas, no_grammar
from tests.tiny_tokenizer import byte_level_tokenizer

TEXT = "abcdefghijklmnopqrst"
COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "The", "max_tokens": len(TEXT), "n": 2}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": len(TEXT),
    "stream_options": {"include_usage": True},
    "stream": True,
}
BODIES: dict[str, dict[str, Any]] = {
    "completion": COMPLETION,
    "stop string": {**COMPLETION, "stop": "kl"},
    "log-probabilities": {**COMPLETION, "logprobs": 1, "prompt_logprobs": 0, "echo": True},
    "chat": CHAT,
    "response": {"model": "tiny", "input": "hello", "max_output_tokens": len(TEXT)},
}


class Ingresses:
    """Each over an engine of its own; the first ones die after so many pieces."""

    def __init__(
        self,
        *deaths: int | None,
        death: Exception | None = None,
        request_timeout_s: float | None = None,
    ) -> None:
        self.deaths = list(deaths)
        self.death = death
        """None: the stream ends as if all were told."""
        self.request_timeout_s = request_timeout_s
        self.bodies: list[Mapping[str, Any]] = []
        self.origins: list[Origin] = []
        self.replicas: list[FakeReplicas] = []

    async def __call__(
        self, body: Mapping[str, Any], origin: Origin, told: list[Told], avoided: frozenset[str]
    ) -> AsyncGenerator[PieceReply, None]:
        number = len(self.bodies)
        self.bodies.append(body)
        self.origins.append(origin)
        self.replicas.append(FakeReplicas(FakeReplica("engine")))
        dies_after = self.deaths[number] if number < len(self.deaths) else None
        service = _service(self.replicas[-1], self.request_timeout_s)
        num_pieces = 0
        async with aclosing(
            piece_replies(service, str(number), body, origin, list(told))
        ) as replies:
            async for reply in replies:
                if num_pieces == dies_after and isinstance(reply, Piece | Complete):
                    if self.death is not None:
                        raise self.death
                    return
                num_pieces += isinstance(reply, Piece)
                yield reply


def _service(replicas: FakeReplicas, request_timeout_s: float | None) -> GenerationService:
    tokenizer = byte_level_tokenizer()
    source = FailoverSource(replicas, no_grammar, max_wait_s=1.0)
    return GenerationService(
        source,
        tokenizer,
        "tiny",
        max_model_len=64,
        vocab_size=len(tokenizer),
        request_timeout_s=request_timeout_s,
    )


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


class AnyHandle:
    def options(self, **_: Any) -> None:
        return None


def handle_over(ingresses: Ingresses, time: Time | None = None) -> ResilientHandle:
    time = time or Time()
    handle = ResilientHandle(AnyHandle(), max_wait_s=20.0, clock=time, sleep=time.sleep)
    handle._ingresses = ingresses
    return handle


async def chunks_of(ingresses: Ingresses, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    async with asyncio.timeout(20):
        return [chunk async for chunk in handle_over(ingresses).generate(body)]


def put_together(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client has of them; how the text was cut is not in it."""
    texts: dict[int, str] = {}
    rest: dict[str, Any] = {"reasons": {}, "usage": None, "ids": set(), "logprobs": {}}
    for place, chunk in enumerate(chunks):
        if "type" in chunk:
            assert chunk["sequence_number"] == place
            if chunk["type"] == "response.output_text.delta":
                texts[0] = texts.get(0, "") + chunk["delta"]
                rest["ids"].add(chunk["item_id"])
            if chunk["type"] == "response.completed":
                rest["usage"] = chunk["response"]["usage"]
            continue
        rest["ids"].add((chunk["id"], chunk["created"]))
        if chunk.get("usage"):
            assert rest["usage"] is None, "it is told once"
            rest["usage"] = chunk["usage"]
        for choice in chunk["choices"]:
            index = choice["index"]
            text = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            texts[index] = texts.get(index, "") + text
            if choice["finish_reason"]:
                assert index not in rest["reasons"]
                rest["reasons"][index] = choice["finish_reason"]
            if choice.get("logprobs"):
                rest["logprobs"].setdefault(index, []).extend(choice["logprobs"]["tokens"])
    assert len(rest.pop("ids")) == 1, "an answer has one id throughout"
    return {"texts": texts, **rest}


@pytest.mark.parametrize("lost", ["exception", "end"])
@pytest.mark.parametrize("name", BODIES)
async def test_the_chunks_are_those_that_would_have_come(name: str, lost: str) -> None:
    body = BODIES[name]
    undisturbed = put_together(await chunks_of(Ingresses(), body))
    assert TEXT[:10] in undisturbed["texts"][0]
    death = TryFailed("the actor died") if lost == "exception" else None
    for dies_after in range(13):
        ingresses = Ingresses(dies_after, death=death)
        assert put_together(await chunks_of(ingresses, body)) == undisturbed
        twice = Ingresses(dies_after, 1, death=death)
        assert put_together(await chunks_of(twice, body)) == undisturbed


async def test_what_was_told_is_not_generated_again() -> None:
    ingresses = Ingresses(3, death=TryFailed("the actor died"))
    await chunks_of(ingresses, {**COMPLETION, "n": 1})
    (_, (first,)), (_, (second,)) = (replicas.calls[0] for replicas in ingresses.replicas)
    assert second.generated_token_ids
    assert second.sampling.seed == first.sampling.seed is not None


async def test_a_request_at_fault_is_told_so_at_once() -> None:
    ingresses = Ingresses()
    with pytest.raises(RequestError, match="got 0"):
        await chunks_of(ingresses, {**COMPLETION, "max_tokens": 0})
    assert len(ingresses.bodies) == 1


async def test_a_request_that_kills_whoever_takes_it_is_given_up() -> None:
    ingresses = Ingresses(*[0] * 20, death=TryFailed("the actor died"))
    with pytest.raises(EngineDead, match="died with this request"):
        await chunks_of(ingresses, COMPLETION)
    assert len(ingresses.bodies) == MOST_DEATHS + 1


async def test_its_time_goes_on_over_all_tries() -> None:
    time = Time()
    ingresses = Ingresses(1, 1, death=TryFailed("the actor died"))
    stream = handle_over(ingresses, time).generate({**COMPLETION, "timeout": 5})
    async with aclosing(stream):
        await anext(stream)
        time.now_s = 2.0
        await anext(stream)
        assert [origin.passed_s for origin in ingresses.origins] == [0, 2]


@pytest.mark.parametrize("asked", [{"timeout": 5}, {}])
async def test_who_goes_on_after_its_time_gives_it_up(asked: dict[str, Any]) -> None:
    time = Time()
    ingresses = Ingresses(1, request_timeout_s=5.0, death=TryFailed("the actor died"))
    stream = handle_over(ingresses, time).generate({**COMPLETION, **asked})
    async with aclosing(stream):
        await anext(stream)
        time.now_s = 6.0
        with pytest.raises(DeadlinePassed):
            await anext(stream)
