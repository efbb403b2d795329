"""So many clients at once: whenever one has its answer, it asks for the next."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.service.answers import Try

Ask = Callable[[Mapping[str, Any]], Awaitable[Try]]


@dataclass(frozen=True, slots=True)
class Round:
    """What came of one list of requests."""

    tries: tuple[Try, ...]
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """From the first request to the last answer."""
        return sum(one.num_tokens for one in self.tries) / self.seconds


async def closed_loop(ask: Ask, bodies: Iterable[Mapping[str, Any]], concurrency: int) -> Round:
    """Raises whatever `ask` does; the other requests are given up then."""
    waiting = iter(bodies)
    tries: list[Try] = []

    async def client() -> None:
        for body in waiting:
            tries.append(await ask(body))

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as clients:
        for _ in range(concurrency):
            clients.create_task(client())
    return Round(tuple(tries), time.perf_counter() - begun)
