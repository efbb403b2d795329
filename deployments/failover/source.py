"""Tokens from whichever replica lives: a source as the engine's own loop is one, that outlives it.

    Run --requests--> FailoverSource --a try--> replica A, which dies after 17 tokens
                                     --the rest, from token 17 on--> replica B

The continuation is the same text, as a token depends on the tokens before it and on the seed alone.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from deployments.failover.answers import Answers
from deployments.failover.replies import Died, Reached, Refused, Reply
from deployments.failover.tries import Tries, TryFailed
from engine.core import EngineStatus
from engine.request import GrammarSpec, Request, TokenDelta


class Replicas(Protocol):
    """The engines behind a router."""

    def call(
        self, requests: tuple[Request, ...], avoided: frozenset[str]
    ) -> AsyncGenerator[Reply, None]:
        """Of one of them, of one that is `avoided` only where there is no other. Closing it ends
        the call there. Raises TryFailed when the replica is not reached, or lost."""

    def abort(self, request_id: str, replica_id: str) -> None:
        """End one request of a call that the replica has; nobody waits for it."""

    async def health(self) -> EngineStatus:
        """Of one that is well. Raises EngineDead."""


@dataclass(slots=True)
class _Call:
    answers: Answers
    replica_id: str | None = None
    """Who has it now."""


class FailoverSource:
    """A `TokenSource`. Belongs to one event loop."""

    def __init__(
        self,
        replicas: Replicas,
        compile_grammar: Callable[[GrammarSpec], Awaitable[None]],
        *,
        max_wait_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`max_wait_s`: see `Tries`."""
        self._replicas = replicas
        self._compile_grammar = compile_grammar
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._sleep = sleep
        self._calls: dict[str, _Call] = {}

    async def generate(self, *requests: Request) -> AsyncGenerator[TokenDelta, None]:
        """As the engine loop's own, and with its errors: EngineFull once another replica was asked
        as well, EngineDead once nobody was found for too long."""
        tries = Tries(self._max_wait_s, self._clock)
        call = _Call(Answers(requests))
        self._calls |= {request.request_id: call for request in requests}
        try:
            while not call.answers.are_over:
                try:
                    async with aclosing(self._try(call, tries)) as deltas:
                        async for delta in deltas:
                            yield delta
                except TryFailed as failed:
                    pause_s = tries.pause_s(failed, has_begun=call.answers.have_begun)
                    await self._sleep(pause_s)
        finally:
            for request in requests:
                self._calls.pop(request.request_id, None)

    def abort(self, request_id: str) -> None:
        call = self._calls.get(request_id)
        if call is None:
            return
        name = call.answers.give_up(request_id)
        if name is not None and call.replica_id is not None:
            self._replicas.abort(name, call.replica_id)

    async def compile_grammar(self, spec: GrammarSpec) -> None:
        await self._compile_grammar(spec)

    async def health(self) -> EngineStatus:
        return await self._replicas.health()

    async def _try(self, call: _Call, tries: Tries) -> AsyncGenerator[TokenDelta, None]:
        """Raises TryFailed when what is open is left unfinished."""
        requests = call.answers.next_try()
        async with aclosing(self._replicas.call(requests, tries.avoided)) as replies:
            call.replica_id = replica_id = await reached(replies, tries.left_s)
            try:
                async for reply in replies:
                    for delta in _taken(reply, call.answers, tries, replica_id):
                        yield delta
                    if call.answers.are_over:
                        return
            except TryFailed as failed:
                failed.replica_id = replica_id
                raise
            finally:
                call.replica_id = None
        raise TryFailed("it left the request unfinished", replica_id)


async def reached(replies: AsyncGenerator[Any, None], limit_s: float) -> str:
    """The replica that has the call, by its first reply. Raises TryFailed."""
    try:
        async with asyncio.timeout(limit_s):
            first = await anext(replies, None)
    except TimeoutError:
        raise TryFailed("no replica was there to take it") from None
    if not isinstance(first, Reached):
        raise TryFailed("the connection ended at once")
    return first.replica_id


def _taken(reply: Reply, answers: Answers, tries: Tries, replica_id: str) -> list[TokenDelta]:
    match reply:
        case Refused(error):
            raise TryFailed(str(error), replica_id, error)
        case Died(reason):
            raise TryFailed(reason, replica_id)
        case Reached():
            return []
    deltas = answers.take(reply)
    if any(delta.token_ids for delta in deltas):
        tries.note_tokens()
    return deltas
