"""Replicas without engines on a virtual clock, behind a router: continuous batching as a cost.

A step computes one round of every decoding sequence and up to `MAX_STEP_TOKENS` of the prompts; it
takes `BASE_S`, and more for each sequence and prompt token. Beginnings that a replica has computed
are free there until other texts have pushed them out of its cache.
"""

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deployments.routing.view import SeenRequest

BASE_S, PER_SEQUENCE_S, PER_PROMPT_TOKEN_S = 0.020, 0.0004, 0.00005
MAX_STEP_TOKENS = 512
SLOTS = 64
CACHE_TOKENS = 200_000
TOKENS_PER_DIGEST = 64


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, as it will turn out."""

    at_s: float
    prompt_tokens: int
    new_tokens: int
    digests: tuple[bytes, ...] = ()
    """Of its beginning, one for each `TOKENS_PER_DIGEST` more."""

    conversation: bytes | None = None

    @property
    def as_handle_call(self) -> SeenRequest:
        """What a router sees of it whole."""
        return SeenRequest(self.prompt_tokens, self.digests, TOKENS_PER_DIGEST)

    @property
    def as_session(self) -> SeenRequest:
        """What it sees of an HTTP request that names its session."""
        if self.conversation is None:
            return self.as_http
        return SeenRequest(self.prompt_tokens, (self.conversation,), self.prompt_tokens)

    @property
    def as_http(self) -> SeenRequest:
        """What it sees of any other HTTP request."""
        return SeenRequest(self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class Answer:
    ttft_s: float
    end_to_end_s: float


@dataclass(slots=True)
class _Running:
    number: int
    ask: Ask
    left: int
    """Prompt tokens to compute."""


def plain(batch_size: int) -> float:
    """Tokens of a sequence in a round, without drafts."""
    return 1.0


def speculative(batch_size: int) -> float:
    """With drafts that pay for small batches and are none for large ones, as in a decided table."""
    return 1.0 + 1.6 * max(0.0, 1.0 - batch_size / 24)


@dataclass
class SimulatedReplica:
    tokens_per_round: Callable[[int], float]
    waiting: deque[_Running] = field(default_factory=deque)
    prefilling: deque[_Running] = field(default_factory=deque)
    decoding: list[tuple[float, int, _Running]] = field(default_factory=list)
    rounds: float = 0.0
    is_busy: bool = False
    cache: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    @property
    def num_requests(self) -> int:
        return len(self.waiting) + len(self.prefilling) + len(self.decoding)

    def step(self) -> tuple[float, list[_Running], list[_Running]]:
        """(seconds, those with their first token at its end, those that end then)."""
        while self.waiting and len(self.prefilling) + len(self.decoding) < SLOTS:
            running = self.waiting.popleft()
            running.left = running.ask.prompt_tokens - self._cached(running.ask)
            self.prefilling.append(running)
        batch_size = len(self.decoding)
        budget = computed = MAX_STEP_TOKENS
        first: list[_Running] = []
        while self.prefilling and budget:
            running = self.prefilling[0]
            done = min(budget, running.left)
            running.left -= done
            budget -= done
            if running.left:
                break
            first.append(self.prefilling.popleft())
        computed -= budget
        self.rounds += self.tokens_per_round(batch_size) if batch_size else 0.0
        ended = []
        while self.decoding and self.decoding[0][0] <= self.rounds:
            ended.append(heapq.heappop(self.decoding)[2])
        for running in first:
            self._remember(running.ask)
            if running.ask.new_tokens <= 1:
                ended.append(running)
            else:
                end = self.rounds + running.ask.new_tokens - 1
                heapq.heappush(self.decoding, (end, running.number, running))
        seconds = BASE_S + PER_SEQUENCE_S * batch_size + PER_PROMPT_TOKEN_S * computed
        return seconds, first, ended

    def _cached(self, ask: Ask) -> int:
        found = sum(1 for _ in itertools.takewhile(self.cache.__contains__, ask.digests))
        return min(ask.prompt_tokens - 1, found * TOKENS_PER_DIGEST)

    def _remember(self, ask: Ask) -> None:
        for digest in ask.digests:
            self.cache[digest] = None
            self.cache.move_to_end(digest)
        while len(self.cache) > CACHE_TOKENS // TOKENS_PER_DIGEST:
            self.cache.popitem(last=False)


class Router:
    """Chooses a replica's number; is told of ends."""

    def choose(self, number: int, ask: Ask, replicas: Sequence[SimulatedReplica]) -> int:
        raise NotImplementedError

    def ended(self, number: int) -> None:
        pass


def simulate(
    asks: Sequence[Ask],
    router: Router,
    num_replicas: int,
    tokens_per_round: Callable[[int], float] = plain,
) -> list[Answer]:
    """In the order of the asks, which are sorted by time."""
    replicas = [SimulatedReplica(tokens_per_round) for _ in range(num_replicas)]
    first_s = [0.0] * len(asks)
    end_s = [0.0] * len(asks)
    events: list[tuple[float, int, int, list[_Running], list[_Running]]] = []
    order = itertools.count()

    def begin(replica: int, now_s: float) -> None:
        seconds, first, ended = replicas[replica].step()
        replicas[replica].is_busy = True
        heapq.heappush(events, (now_s + seconds, next(order), replica, first, ended))

    def finish_until(limit_s: float) -> None:
        while events and events[0][0] <= limit_s:
            now_s, _, replica, first, ended = heapq.heappop(events)
            for running in first:
                first_s[running.number] = now_s
            for running in ended:
                end_s[running.number] = now_s
                router.ended(running.number)
            replicas[replica].is_busy = False
            if replicas[replica].num_requests:
                begin(replica, now_s)

    for number, ask in enumerate(asks):
        finish_until(ask.at_s)
        chosen = router.choose(number, ask, replicas)
        replicas[chosen].waiting.append(_Running(number, ask, ask.prompt_tokens))
        if not replicas[chosen].is_busy:
            begin(chosen, ask.at_s)
    finish_until(float("inf"))
    return [
        Answer(first_s[number] - ask.at_s, end_s[number] - ask.at_s)
        for number, ask in enumerate(asks)
    ]
