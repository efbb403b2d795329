"""An EngineLoop that plays a script: what a service or an API does can be seen without a model."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from engine.core import EngineStatus
from engine.errors import PacelineError
from engine.request import FinishReason, GrammarSpec, Request, TokenDelta, TokenLogprobs

Step = tuple[int, ...] | Exception | asyncio.Event | FinishReason | TokenDelta
"""Tokens to emit, an error to raise, an event to wait for, an end with the last tokens (at STOP the
last one is an EOS token), or a delta to hand on as it is."""

STATUS = EngineStatus(
    num_running=1,
    num_waiting=2,
    num_decoding=1,
    num_blocks=64,
    num_free_blocks=60,
    table_version=3,
    draft_len=4,
    steps=17,
)


class FakeLoop:
    """Plays a script for every request. Ends with `length` at max_tokens, as the engine does.

    Of a group of requests the first ones have a script each, the others the last one's; they take
    turns, a step each. Log-probabilities are `logprobs_of` a token.
    """

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self.scripts = [list(script) for script in scripts]
        self.requests: list[Request] = []
        self.compiled: list[GrammarSpec] = []
        self.refuses_grammars: PacelineError | None = None
        self.holds_grammars = asyncio.Event()
        """Until it is set."""
        self.holds_grammars.set()
        self.aborted: list[str] = []
        self.num_open = 0
        self.closed = asyncio.Event()
        """Set when a call of `generate` has ended, however it did."""
        self.started = asyncio.Event()
        self.death: PacelineError | None = None
        self.status = STATUS

    async def generate(self, *requests: Request) -> AsyncGenerator[TokenDelta, None]:
        self.requests += requests
        self.num_open += 1
        self.started.set()
        players = [
            self._play(request, self.scripts[min(index, len(self.scripts) - 1)])
            for index, request in enumerate(requests)
        ]
        try:
            while players:
                for player in list(players):
                    delta = await anext(player, None)
                    if delta is None:
                        players.remove(player)
                    else:
                        yield delta
        finally:
            self.num_open -= 1
            self.closed.set()

    async def _play(
        self, request: Request, script: Sequence[Step]
    ) -> AsyncGenerator[TokenDelta, None]:
        room = request.sampling.max_tokens
        is_first = True
        for index, step in enumerate(script):
            if request.request_id in self.aborted:
                yield TokenDelta(request.request_id, finish_reason=FinishReason.ABORT)
                return
            if isinstance(step, Exception):
                raise step
            if isinstance(step, TokenDelta):
                yield step._replace(request_id=request.request_id)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif not isinstance(step, FinishReason):
                end = script[index + 1] if index + 1 < len(script) else None
                reason = end if isinstance(end, FinishReason) else None
                tokens = step[:room]
                room -= len(tokens)
                if room == 0 and reason is None:
                    reason = FinishReason.LENGTH
                yield _delta(request, tokens, reason, is_first)
                is_first = False
                if reason is not None:
                    return

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)

    async def compile_grammar(self, spec: GrammarSpec) -> None:
        self.compiled.append(spec)
        await self.holds_grammars.wait()
        if self.refuses_grammars is not None:
            raise self.refuses_grammars

    async def health(self) -> EngineStatus:
        if self.death is not None:
            raise self.death
        return self.status


def logprobs_of(token_id: int, num_top: int) -> TokenLogprobs:
    """At every place tokens 3, 4, 5, ... are the likeliest, and `token_id` has rank 9."""
    top = tuple((3 + place, -(1 + place) / 8) for place in range(num_top))
    return TokenLogprobs(token_id, -token_id / 4, rank=9, top=top)


def _delta(
    request: Request, tokens: tuple[int, ...], reason: FinishReason | None, is_first: bool
) -> TokenDelta:
    sampling = request.sampling
    return TokenDelta(
        request.request_id,
        tokens,
        reason,
        num_drafted=2,
        logprobs=()
        if sampling.logprobs is None
        else tuple(logprobs_of(token, sampling.logprobs) for token in tokens),
        prompt_logprobs=()
        if sampling.prompt_logprobs is None or not is_first
        else tuple(
            logprobs_of(token, sampling.prompt_logprobs) for token in request.prompt_token_ids[1:]
        ),
        num_cached_tokens=3 if is_first else 0,
        ends_with_stop_token=reason is FinishReason.STOP,
    )
