"""Replicas that count: a request's token at each place is the place's number, whoever gives it."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from deployments.failover.replies import Died, Reached, Refused, Reply
from deployments.failover.tries import TryFailed
from engine.core import EngineStatus
from engine.errors import PacelineError
from engine.request import FinishReason, GrammarSpec, Request, TokenDelta
from tests.deployments.fake_loop import STATUS, logprobs_of

FIRST_TOKEN = 67
"""The letter a of the tests' tokenizer; those of the others follow."""
TURNS_A_STEP = 8
"""Of the event loop: whoever reads has told a step's tokens when the next ones come."""


@dataclass
class FakeReplica:
    """Gives two tokens a step, until something befalls it."""

    name: str
    dies_after: int | None = None
    """New tokens of each request, of all calls together."""
    death: Exception | Died | None = field(default_factory=lambda: TryFailed("the actor died"))
    """As a reply, as an exception, or as an end without one."""
    refusals: list[PacelineError] = field(default_factory=list)
    """Of the next calls."""
    refuses: PacelineError | None = None
    """Whatever comes."""
    stops_after: int | None = None
    """New tokens after which it waits for ever."""
    is_unreachable: bool = False
    is_dead: bool = False
    num_new: int = 0
    aborted: list[str] = field(default_factory=list)

    async def replies(self, requests: tuple[Request, ...]) -> AsyncGenerator[Reply, None]:
        if self.is_unreachable:
            await asyncio.Event().wait()
        if self.is_dead:
            raise TryFailed("it is not there")
        yield Reached(self.name)
        if self.refusals:
            yield Refused(self.refusals.pop(0))
            return
        if self.refuses is not None:
            yield Refused(self.refuses)
            return
        open_requests = {request.request_id: request for request in requests}
        known = {r.request_id: list(r.generated_token_ids) for r in requests}
        is_first = True
        while open_requests:
            if self.dies_after is not None and self.num_new >= self.dies_after:
                self.is_dead = True
                if isinstance(self.death, Exception):
                    raise self.death
                if self.death is not None:
                    yield self.death
                return
            if self.stops_after is not None and self.num_new >= self.stops_after:
                await asyncio.Event().wait()
            step = []
            for name, request in list(open_requests.items()):
                if name in self.aborted:
                    step.append(TokenDelta(name, finish_reason=FinishReason.ABORT))
                    del open_requests[name]
                    continue
                step.append(_delta(request, known[name], is_first=is_first))
                if step[-1].finish_reason is not None:
                    del open_requests[name]
            is_first = False
            self.num_new += 2
            yield tuple(step)
            for _ in range(TURNS_A_STEP):
                await asyncio.sleep(0)


def _delta(request: Request, known: list[int], *, is_first: bool) -> TokenDelta:
    num_max = request.sampling.max_tokens
    end = min(num_max, len(known) + 2)
    new = tuple(range(FIRST_TOKEN + len(known), FIRST_TOKEN + end))
    known += new
    asked = request.sampling.prompt_logprobs
    return TokenDelta(
        request.request_id,
        new,
        FinishReason.LENGTH if len(known) == num_max else None,
        num_drafted=3,
        num_accepted=len(new) - 1,
        logprobs=()
        if request.sampling.logprobs is None
        else tuple(logprobs_of(token, request.sampling.logprobs) for token in new),
        prompt_logprobs=tuple(logprobs_of(token, asked) for token in request.prompt_token_ids[1:])
        if is_first and asked is not None
        else (),
    )


class FakeReplicas:
    """The first one that is not avoided gets a call; if all are, the first."""

    def __init__(self, *replicas: FakeReplica) -> None:
        self.replicas = list(replicas)
        self.calls: list[tuple[str, tuple[Request, ...]]] = []
        """To whom, and what."""
        self.num_open = 0
        self.reached = asyncio.Event()

    async def call(
        self, requests: tuple[Request, ...], avoided: frozenset[str]
    ) -> AsyncGenerator[Reply, None]:
        free = [replica for replica in self.replicas if replica.name not in avoided]
        replica = (free or self.replicas)[0]
        self.calls.append((replica.name, requests))
        self.num_open += 1
        try:
            async for reply in replica.replies(requests):
                self.reached.set()
                yield reply
        finally:
            self.num_open -= 1
            if replica.is_dead and len(self.replicas) > 1:
                self.replicas.remove(replica)

    def abort(self, request_id: str, replica_id: str) -> None:
        for replica in self.replicas:
            if replica.name == replica_id:
                replica.aborted.append(request_id)

    async def health(self) -> EngineStatus:
        return STATUS


async def no_grammar(_spec: GrammarSpec) -> None:
    """Where nothing is compiled."""
