"""From a request's body to an answer in OpenAI's shapes. No HTTP here.

    body --JobMaker--> Job --Run--> ChoiceDelta, ChoiceDelta, ... --ReplyFormat--> chunks, or whole

Closing or cancelling any generator here closes the engine's, which aborts the request and frees its
blocks within a step.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from deployments.generation.choice import ChoiceDelta, merged
from deployments.generation.job import Job
from deployments.generation.preparation import JobMaker
from deployments.generation.run import Run, TokenSource
from deployments.json_values import show
from deployments.limits import Limits
from deployments.openai.replies import JsonObject
from deployments.openai.tokenization import DetokenizeReply, TokenizeReply
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
        request_timeout_s: float | None = None,
    ) -> None:
        """`request_timeout_s`: for requests that don't say how long they may take."""
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
        self._request_timeout_s = request_timeout_s
        self.model_name = model_name
        self.max_model_len = max_model_len
        self.created_unix_s = int(time.time())

    async def prepare_completion(
        self, body: Mapping[str, Any], timeout_s: float | None = None
    ) -> Job:
        """`timeout_s`: what the caller allows beside the body. Its time begins now.

        Raises RequestError, ModelNotFound or PromptTooLong.
        """
        return await self._timed(self._jobs.completion(body), "prompt", timeout_s)

    async def prepare_chat(self, body: Mapping[str, Any], timeout_s: float | None = None) -> Job:
        """As `prepare_completion`."""
        return await self._timed(self._jobs.chat(body), "messages", timeout_s)

    async def prepare_response(
        self, body: Mapping[str, Any], timeout_s: float | None = None
    ) -> Job:
        """As `prepare_completion`, for the Responses API."""
        return await self._timed(self._jobs.response(body), "input", timeout_s)

    async def tokenize(self, body: Mapping[str, Any]) -> JsonObject:
        """Raises RequestError or ModelNotFound."""
        token_ids = (await self._jobs.tokens(body)).token_ids
        return TokenizeReply(
            tokens=list(token_ids), count=len(token_ids), max_model_len=self.max_model_len
        ).model_dump()

    async def detokenize(self, body: Mapping[str, Any]) -> JsonObject:
        """Raises RequestError or ModelNotFound."""
        return DetokenizeReply(prompt=await self._jobs.text(body)).model_dump()

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
            yield job.format.usage_chunk(run.totals)

    async def whole(self, job: Job) -> JsonObject:
        """The answer in one piece."""
        run = Run(self._loop, job)
        deltas_of: list[list[ChoiceDelta]] = [[] for _ in job.requests]
        async with aclosing(run.deltas()) as deltas:
            async for delta in deltas:
                deltas_of[delta.index].append(delta)
        return job.format.whole([merged(d) for d in deltas_of], run.prompt_logprobs, run.totals)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[JsonObject, None]:
        """Chunks for a body of any endpoint: a chat if it has messages, a response if it has input.
        For handle callers."""
        if not isinstance(body, Mapping):
            raise RequestError("body", f"the request must be a mapping, got {show(body)}")
        prepare = self.prepare_completion
        if "messages" in body:
            prepare = self.prepare_chat
        elif "input" in body:
            prepare = self.prepare_response
            body = {**body, "stream": True}
        async with aclosing(self.chunks(await prepare(body))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _timed(
        self, preparing: Awaitable[Job], prompt_field: str, timeout_s: float | None
    ) -> Job:
        now = asyncio.get_running_loop().time()
        job = self.limits.check(await preparing, prompt_field)
        limits = [limit for limit in (job.timeout_s, timeout_s) if limit is not None]
        limit = min(limits, default=self._request_timeout_s)
        return job if limit is None else dataclasses.replace(job, deadline_s=now + limit)

    async def health(self) -> EngineStatus:
        """Raises EngineDead."""
        return await self._loop.health()
