"""Whether more requests may wait: bounds on their number and their tokens, and each tenant's part.

A tenant with a name may have no more waiting than is still free (dynamic thresholds: Choudhury and
Hahne 1998, "Dynamic queue length thresholds for shared-memory packet switches"). So one alone
fills half of the queue, two a third each, and there is always room for one that comes later.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import EngineFull, OverShare

MIN_RETRY_S = 1
MAX_RETRY_S = 60


@dataclass(frozen=True, slots=True)
class Load:
    """Of requests, of their tokens, or of one tenant's."""

    requests: int
    tokens: int
    """Prompts and all new tokens that may come."""

    def __add__(self, other: "Load") -> "Load":
        return Load(self.requests + other.requests, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class Bounds:
    in_flight: int
    """Requests that run or wait: they wait for a step even where there is room."""
    waiting: Load
    """What may wait beyond those."""

    def check(
        self,
        new: Load,
        *,
        num_running: int,
        waiting: Load,
        own: Load,
        tenant: str,
        retry_s: Callable[[], int],
    ) -> None:
        """Raises EngineFull, or OverShare where it is `tenant` that has too much waiting. `own` is
        its part of `waiting`; `retry_s` tells when to come again."""
        in_flight = num_running + waiting.requests
        if in_flight + new.requests > self.in_flight:
            raise EngineFull(
                f"{in_flight} requests are running or waiting already, and the limit is "
                f"{self.in_flight}",
                retry_s(),
            )
        # One that waits alone is always taken: what a request may ask for bounds it.
        if waiting.requests and waiting.tokens + new.tokens > self.waiting.tokens:
            raise EngineFull(
                f"{waiting.tokens} tokens are waiting already; with {new.tokens} more the limit "
                f"of {self.waiting.tokens} tokens would be exceeded",
                retry_s(),
            )
        # As if its sequences came one by one: those before the last one are waiting already. One
        # alone is always taken, as above.
        before = new.requests - 1
        if not tenant or not own.requests + before:
            return
        tokens_before = new.tokens * before // new.requests
        for what, asked, free in (
            ("requests", own.requests + new.requests, self.in_flight - in_flight - before),
            (
                "tokens",
                own.tokens + new.tokens,
                self.waiting.tokens - waiting.tokens - tokens_before,
            ),
        ):
            if asked > free:
                raise OverShare(
                    f"with this request {asked} {what} of this API key would be waiting, which is "
                    f"more than the queue has left ({free})",
                    retry_s(),
                )


class Throughput:
    """Tokens a second of the last steps, older ones counting ever less."""

    KEPT = 0.98
    """Of the weight of what was before, at each step: half after some 35."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def note(self, num_tokens: int, seconds: float) -> None:
        self._tokens = self.KEPT * self._tokens + num_tokens
        self._seconds = self.KEPT * self._seconds + seconds

    def retry_s(self, num_outstanding: int) -> int:
        """Whole seconds until so many tokens are done, 1 to 60; 1 before anything is known."""
        if not self._tokens or not self._seconds:
            return MIN_RETRY_S
        seconds = num_outstanding * self._seconds / self._tokens
        return math.ceil(min(max(seconds, MIN_RETRY_S), MAX_RETRY_S))
