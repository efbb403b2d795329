"""Whether the routers live that a replica computes answers for.

Ray cancels nothing when the actor dies that a streamed call came from: its requests would run on to
their last token for nobody, while the clients ask again elsewhere.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import ray

logger = logging.getLogger(__name__)

CHECK_S: Final = 5.0
MISSES: Final = 2
"""In a row, before a caller counts as dead: ending a living one's answers would be worse."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An actor, by its name."""

    name: str
    namespace: str


def this_caller() -> Caller | None:
    """The actor that this process runs; None where it runs none, or one without a name."""
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:
        return None
    name = context.get_actor_name()
    return Caller(name, context.namespace) if name else None


def is_alive(caller: Caller) -> bool:
    """As far as the cluster knows; so too while it can't be asked."""
    try:
        ray.get_actor(caller.name, namespace=caller.namespace)
    except ValueError:
        return False
    except Exception as error:
        logger.warning("it is not known whether %s lives (%s)", caller.name, type(error).__name__)
    return True


class Callers:
    """Looks after the calls of one replica. Belongs to one event loop."""

    def __init__(
        self,
        lives: Callable[[Caller], bool] = is_alive,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`lives` may take a while; it is asked in a thread."""
        self._lives = lives
        self._sleep = sleep
        self._calls: list[tuple[Caller, Callable[[], None]]] = []
        self._watch: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, caller: Caller | None, end: Callable[[], None]) -> Iterator[None]:
        """While the call lasts: `end` it once its caller is dead."""
        if caller is None:
            yield
            return
        call = (caller, end)
        self._calls.append(call)
        if self._watch is None:
            self._watch = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._calls.remove(call)

    async def _look(self) -> None:
        """Until there is no call left."""
        missed = Counter[Caller]()
        try:
            while self._calls:
                await self._sleep(CHECK_S)
                for caller in {caller for caller, _ in self._calls}:
                    if await asyncio.to_thread(self._lives, caller):
                        missed.pop(caller, None)
                        continue
                    missed[caller] += 1
                    if missed[caller] == MISSES:
                        self._end_all(caller)
        finally:
            self._watch = None

    def _end_all(self, caller: Caller) -> None:
        ends = [end for other, end in self._calls if other == caller]
        logger.warning("%s is dead: ending %d calls that came from it", caller.name, len(ends))
        for end in ends:
            end()
