"""The work that a replica has and gets: counted where requests enter the engine, and leave it."""

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from deployments.autoscaling.arrivals import Arrivals
from deployments.failover.answers import name_of_first_try
from deployments.generation.run import TokenSource
from engine.core import EngineStatus
from engine.request import GrammarSpec, Request, TokenDelta

_USUAL_NEW_TOKENS = 128.0
_NEWEST_SHARE = 0.05
"""Of the mean answer, what the newest one makes out."""
_REMEMBERED = 10_000
"""Names of requests, the latest."""


@dataclass(slots=True)
class _Entry:
    prompt_tokens: int
    """Left to compute: all until the first token comes."""
    max_tokens: int
    new_tokens: int = 0
    """So far."""


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens, at one moment."""

    prompt_tokens: float
    new_tokens: float
    prompt_tokens_per_s: float
    new_tokens_per_s: float
    recent_prompt_tokens_per_s: float
    recent_new_tokens_per_s: float


class Ledger:
    """Of one replica. How long an answer gets nobody knows before its end: as long as they get on
    average, and no longer than its `max_tokens`; one that is longer than the average already goes
    on for as long again. All methods belong to one event loop."""

    def __init__(self, unix_s: Callable[[], float] = time.time) -> None:
        """`unix_s`: the same clock for all replicas (see `Arrivals`)."""
        self._unix_s = unix_s
        self._entries: dict[str, _Entry] = {}
        self._mean_new_tokens = _USUAL_NEW_TOKENS
        self._prompts = Arrivals()
        self._answers = Arrivals()
        self._num_computed = 0
        self._arrived: OrderedDict[str, None] = OrderedDict()

    def enter(self, requests: tuple[Request, ...]) -> None:
        """Those that share a prompt have it computed once. What another replica had generated is
        computed as a prompt is, and shortens what is to come."""
        now_s = self._unix_s()
        prompts: set[tuple[int, ...]] = set()
        for request in requests:
            num_known = len(request.generated_token_ids)
            is_first = request.prompt_token_ids not in prompts
            prompts.add(request.prompt_token_ids)
            num_prompt = num_known + (len(request.prompt_token_ids) if is_first else 0)
            entry = _Entry(num_prompt, request.sampling.max_tokens, num_known)
            self._entries[request.request_id] = entry
            if self._is_arrival(request.request_id):
                self._prompts.add(now_s, num_prompt)
                self._answers.add(now_s, self._still_to_come(entry))

    def note(self, delta: TokenDelta) -> None:
        """Tokens of a request; harmless when it has left."""
        entry = self._entries.get(delta.request_id)
        if entry is None:
            return
        if delta.token_ids and entry.prompt_tokens:
            self._num_computed += max(0, entry.prompt_tokens - delta.num_cached_tokens)
            entry.prompt_tokens = 0
        entry.new_tokens += len(delta.token_ids)
        if delta.finish_reason is not None:
            self._leave(delta.request_id)

    def leave(self, requests: tuple[Request, ...]) -> None:
        """However they ended; harmless when they have left."""
        for request in requests:
            self._leave(request.request_id)

    def work(self) -> Work:
        now_s = self._unix_s()
        entries = self._entries.values()
        return Work(
            prompt_tokens=sum(entry.prompt_tokens for entry in entries),
            new_tokens=sum(self._still_to_come(entry) for entry in entries),
            prompt_tokens_per_s=self._prompts.mean(now_s),
            new_tokens_per_s=self._answers.mean(now_s),
            recent_prompt_tokens_per_s=self._prompts.recent(now_s),
            recent_new_tokens_per_s=self._answers.recent(now_s),
        )

    def drain_computed(self) -> int:
        """Prompt tokens computed since the last call, those of the prefix cache left out."""
        computed, self._num_computed = self._num_computed, 0
        return computed

    def _still_to_come(self, entry: _Entry) -> float:
        return min(entry.max_tokens - entry.new_tokens, self._mean_new_tokens)

    def _is_arrival(self, request_id: str) -> bool:
        """Not one that comes again, as it does to full replicas each second until one takes it."""
        name = name_of_first_try(request_id)
        is_known = name in self._arrived
        self._arrived[name] = None
        self._arrived.move_to_end(name)
        if len(self._arrived) > _REMEMBERED:
            self._arrived.popitem(last=False)
        return not is_known

    def _leave(self, request_id: str) -> None:
        entry = self._entries.pop(request_id, None)
        if entry is not None and entry.new_tokens:
            self._mean_new_tokens += _NEWEST_SHARE * (entry.new_tokens - self._mean_new_tokens)


class CountedLoop:
    """An engine loop whose requests are written into a ledger."""

    def __init__(self, loop: TokenSource, ledger: Ledger) -> None:
        self._loop = loop
        self._ledger = ledger

    async def generate(self, *requests: Request) -> AsyncGenerator[TokenDelta, None]:
        """As the loop's own. One that is refused has come too, and is as soon gone."""
        self._ledger.enter(requests)
        try:
            async with aclosing(self._loop.generate(*requests)) as deltas:
                async for delta in deltas:
                    self._ledger.note(delta)
                    yield delta
        finally:
            self._ledger.leave(requests)

    def abort(self, request_id: str) -> None:
        self._loop.abort(request_id)

    async def compile_grammar(self, spec: GrammarSpec) -> None:
        await self._loop.compile_grammar(spec)

    async def health(self) -> EngineStatus:
        return await self._loop.health()
