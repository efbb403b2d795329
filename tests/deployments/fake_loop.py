"""An EngineLoop that plays a script: what a service or an API does can be seen without a model."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from engine.core import EngineStatus
from engine.errors import PacelineError
from engine.request import FinishReason, Request, TokenDelta

Step = tuple[int, ...] | Exception | asyncio.Event | FinishReason
"""Tokens to emit, an error to raise, an event to wait for, or an end with the last tokens."""

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
    """Plays `steps` for every request. Ends with `length` at max_tokens, as the engine does."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        self.requests: list[Request] = []
        self.num_open = 0
        self.closed = asyncio.Event()
        """Set when a request has ended, however it did."""
        self.started = asyncio.Event()
        self.death: PacelineError | None = None

    async def generate(self, request: Request) -> AsyncGenerator[TokenDelta, None]:
        self.requests.append(request)
        self.num_open += 1
        self.started.set()
        room = request.sampling.max_tokens
        try:
            for index, step in enumerate(self.steps):
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif not isinstance(step, FinishReason):
                    end = self.steps[index + 1] if index + 1 < len(self.steps) else None
                    reason = end if isinstance(end, FinishReason) else None
                    tokens = step[:room]
                    room -= len(tokens)
                    if room == 0 and reason is None:
                        reason = FinishReason.LENGTH
                    yield TokenDelta(request.request_id, tokens, reason, num_drafted=2)
                    if reason is not None:
                        return
        finally:
            self.num_open -= 1
            self.closed.set()

    def status(self) -> EngineStatus:
        return STATUS

    def check_health(self) -> None:
        if self.death is not None:
            raise self.death
