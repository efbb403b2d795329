"""From a request's body to an answer in OpenAI's shapes. No HTTP here.

    body --JobMaker--> Job --Run--> ChoiceDelta, ChoiceDelta, ... --ReplyFormat--> chunks, or whole

Closing or cancelling any generator here closes the engine's, which aborts the request and frees its
blocks within a step.
"""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from deployments.generation.choice import ChoiceDelta, merged
from deployments.generation.job import Job
from deployments.generation.preparation import JobMaker
from deployments.generation.run import Run, TokenSource
from deployments.json_values import show
from deployments.limits import Limits
from deployments.openai.replies import JsonObject
from engine.core import EngineStatus
from engine.errors import RequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class GenerationService:
    """Text generation with one model. Belongs to one event loop."""

    def __init__(
        self,
        loop: TokenSource,
        tokenizer: "PreTrainedTokenizerFast",
        model_name: str,
        *,
        max_model_len: int,
        vocab_size: int,
    ) -> None:
        self._loop = loop
        self._jobs = JobMaker(
            tokenizer,
            model_name,
            max_model_len=max_model_len,
            vocab_size=vocab_size,
            compile_grammar=loop.compile_grammar,
        )
        self.limits = Limits()
        """To be replaced when they change; requests in flight are not asked again."""
        self.model_name = model_name
        self.max_model_len = max_model_len
        self.created_unix_s = int(time.time())

    async def prepare_completion(self, body: Mapping[str, Any]) -> Job:
        """Raises RequestError, ModelNotFound or PromptTooLong."""
        return self.limits.check(await self._jobs.completion(body), "prompt")

    async def prepare_chat(self, body: Mapping[str, Any]) -> Job:
        """Raises RequestError, ModelNotFound or PromptTooLong."""
        return self.limits.check(await self._jobs.chat(body), "messages")

    async def chunks(self, job: Job) -> AsyncGenerator[JsonObject, None]:
        """The answer as stream chunks, none before the first token is there."""
        run = Run(self._loop, job)
        opened: set[int] = set()
        async with aclosing(run.deltas()) as deltas:
            async for delta in deltas:
                if delta.index not in opened:
                    opened.add(delta.index)
                    for chunk in job.format.opening(delta.index, run.prompt_logprobs):
                        yield chunk
                for chunk in job.format.chunks(delta):
                    yield chunk
        if job.include_usage:
            yield job.format.usage_chunk(run.usage)

    async def whole(self, job: Job) -> JsonObject:
        """The answer in one piece."""
        run = Run(self._loop, job)
        deltas_of: list[list[ChoiceDelta]] = [[] for _ in job.requests]
        async with aclosing(run.deltas()) as deltas:
            async for delta in deltas:
                deltas_of[delta.index].append(delta)
        return job.format.whole([merged(d) for d in deltas_of], run.prompt_logprobs, run.usage)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[JsonObject, None]:
        """Chunks for a body of either endpoint: a chat if it has messages. For handle callers."""
        if not isinstance(body, Mapping):
            raise RequestError("body", f"the request must be a mapping, got {show(body)}")
        prepare = self.prepare_chat if "messages" in body else self.prepare_completion
        async with aclosing(self.chunks(await prepare(body))) as chunks:
            async for chunk in chunks:
                yield chunk

    def status(self) -> EngineStatus:
        """Raises EngineDead."""
        self._loop.check_health()
        return self._loop.status()
