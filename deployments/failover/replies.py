"""What a replica sends back for a call: that it has it, then tokens as they come.

A failure is a reply too: as an exception it would lose its type on the way, and Ray would log it.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from deployments.generation.run import TokenSource
from engine.core import EngineStatus
from engine.errors import EngineDead, PacelineError
from engine.request import Request, TokenDelta


@dataclass(frozen=True, slots=True)
class Reached:
    """The first reply: who has the call."""

    replica_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was begun: the request is at fault, or the engine is full, or dead already."""

    error: PacelineError


@dataclass(frozen=True, slots=True)
class Died:
    """The engine died of something while it had the call."""

    reason: str


Reply: TypeAlias = Reached | Refused | Died | tuple[TokenDelta, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Of the engine, as long as it lives."""

    max_model_len: int
    vocab_size: int
    eos_token_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Health:
    replica_id: str
    status: EngineStatus | None
    failure: str = ""
    """Why there is no status."""
    heard_s_ago: float | None = None
    """Seconds since the policy actor confirmed the table in force; None: never yet."""


async def replies(
    source: TokenSource, replica_id: str, requests: tuple[Request, ...]
) -> AsyncGenerator[Reply, None]:
    """The replica's side of a call: what has come together goes out together."""
    yield Reached(replica_id)
    try:
        await source.health()
    except EngineDead as error:
        yield Refused(error)
        return
    deltas: list[TokenDelta] = []
    arrived = asyncio.Event()

    async def read() -> None:
        async with aclosing(source.generate(*requests)) as stream:
            async for delta in stream:
                deltas.append(delta)
                arrived.set()

    pump = asyncio.create_task(read())
    pump.add_done_callback(lambda _: arrived.set())
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            has_ended = pump.done()
            if deltas:
                together = tuple(deltas)
                deltas.clear()
                yield together
            if has_ended:
                break
        try:
            pump.result()
        except EngineDead as error:
            yield Died(str(error))
        except PacelineError as error:
            yield Refused(error)
    finally:
        pump.cancel()
        await asyncio.wait({pump})
