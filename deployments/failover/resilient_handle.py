"""For callers with a handle of the application: their answers outlive the replica that gives them.

    handle = ResilientHandle(serve.get_app_handle("paceline"))
    async for chunk in handle.generate(body):
        ...

The other replica reads again what this one had told, token by token as it was told, and goes on
behind it: the chunks are those that would have come. It works with the application as it is, router
or not; with one, it outlives the router.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from deployments.failover.pieces import Complete, PieceReply
from deployments.failover.replies import Died, Refused
from deployments.failover.serve_calls import stream
from deployments.failover.source import reached
from deployments.failover.tries import Tries, TryFailed
from deployments.generation.origin import Origin
from deployments.generation.run import Told
from deployments.routing.steering import Steering
from deployments.service import Piece


class Ingresses(Protocol):
    """Replicas that answer bodies."""

    def __call__(
        self, body: Mapping[str, Any], origin: Origin, told: list[Told], avoided: frozenset[str]
    ) -> AsyncGenerator[PieceReply, None]:
        """Of one of them. Raises TryFailed when it is not reached, or lost."""


class ResilientHandle:
    """Any number of answers at once. Belongs to one event loop."""

    def __init__(
        self,
        handle: Any,
        *,
        max_wait_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`handle`: the application's; `max_wait_s`: see `Tries`."""
        self._ingresses: Ingresses = _calling(handle)
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._sleep = sleep

    async def generate(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Stream chunks for a body of any endpoint. A request without a seed is given one.

        Raises RequestError, EngineFull, GenerationFailed or DeadlinePassed, and EngineDead when
        nobody went on for too long. Closing it frees the blocks.
        """
        tries = Tries(self._max_wait_s, self._clock)
        origin, told = Origin.repeatable(), list[Told]()
        started_s = self._clock()
        while True:
            try:
                origin = dataclasses.replace(origin, passed_s=self._clock() - started_s)
                pieces = _pieces(self._ingresses(body, origin, told, tries.avoided), tries)
                async with aclosing(pieces):
                    async for piece in pieces:
                        told.append(piece.made_of)
                        for chunk in piece.chunks:
                            yield chunk
                return
            except TryFailed as failed:
                await self._sleep(tries.pause_s(failed, has_begun=bool(told)))


async def _pieces(
    replies: AsyncGenerator[PieceReply, None], tries: Tries
) -> AsyncGenerator[Piece, None]:
    """To the end of the answer. Raises TryFailed."""
    async with aclosing(replies):
        replica_id = await reached(replies, tries.left_s)
        try:
            async for reply in replies:
                match reply:
                    case Piece():
                        tries.note_tokens()
                        yield reply
                    case Refused(error):
                        raise TryFailed(str(error), replica_id, error)
                    case Died(reason):
                        raise TryFailed(reason, replica_id)
                    case Complete():
                        return
        except TryFailed as failed:
            failed.replica_id = replica_id
            raise
    raise TryFailed("it left the request unfinished", replica_id)


def _calling(handle: Any) -> Ingresses:
    method = handle.options(stream=True, method_name="resumable")

    def call(
        body: Mapping[str, Any], origin: Origin, told: list[Told], avoided: frozenset[str]
    ) -> AsyncGenerator[PieceReply, None]:
        return stream(method, body, origin, told, Steering(avoided=avoided))

    return call
