"""From a request's body to an answer in OpenAI's shapes. No HTTP here.

    body --JobMaker--> Job --Run--> ChoiceDelta, ChoiceDelta, ... --ReplyFormat--> chunks, or whole

Closing or cancelling any generator here closes the engine's, which aborts the request and frees its
blocks within a step.
"""

import asyncio
import dataclasses
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.metrics.definitions import Outcome
from cluster.metrics.requests import RequestRecord
from deployments.generation.choice import ChoiceDelta, merged
from deployments.generation.errors import DeadlinePassed
from deployments.generation.job import Job
from deployments.generation.origin import Origin
from deployments.generation.preparation import JobMaker
from deployments.generation.run import Run, TokenSource, Told
from deployments.json_values import show
from deployments.limits import Limits
from deployments.openai.replies import JsonObject
from deployments.openai.tokenization import DetokenizeReply, TokenizeReply
from engine.core import EngineStatus
from engine.errors import EngineFull, RequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


_OF_NO_DELTA: Told = ()
"""What the chunk with the usage is made of: the last one, and the only one of its kind."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Chunks that go out together."""

    chunks: tuple[JsonObject, ...]
    made_of: Told


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
        tell: Callable[[RequestRecord], None] = lambda record: None,
    ) -> None:
        """`request_timeout_s`: for requests that don't say how long they may take. `tell`: is told
        of each request at its end."""
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
        self._tell = tell
        self.model_name = model_name
        self.max_model_len = max_model_len
        self.created_unix_s = int(time.time())

    async def prepare_completion(
        self,
        body: Mapping[str, Any],
        timeout_s: float | None = None,
        origin: Origin | None = None,
    ) -> Job:
        """`timeout_s`: what the caller allows beside the body. Its time begins now. `origin`: that
        of an answer that was begun elsewhere.

        Raises RequestError, ModelNotFound or PromptTooLong.
        """
        return await self._prepared(
            self._jobs.completion, body, ("prompt", "max_tokens"), timeout_s, origin
        )

    async def prepare_chat(
        self,
        body: Mapping[str, Any],
        timeout_s: float | None = None,
        origin: Origin | None = None,
    ) -> Job:
        """As `prepare_completion`."""
        new_name = "max_completion_tokens"
        length = "max_tokens" if body.get(new_name) is None else new_name
        return await self._prepared(self._jobs.chat, body, ("messages", length), timeout_s, origin)

    async def prepare_response(
        self,
        body: Mapping[str, Any],
        timeout_s: float | None = None,
        origin: Origin | None = None,
    ) -> Job:
        """As `prepare_completion`, for the Responses API."""
        return await self._prepared(
            self._jobs.response, body, ("input", "max_output_tokens"), timeout_s, origin
        )

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
        async with aclosing(self.pieces(job)) as pieces:
            async for piece in pieces:
                for chunk in piece.chunks:
                    yield chunk

    async def pieces(self, job: Job, told: Sequence[Told] = ()) -> AsyncGenerator[Piece, None]:
        """The chunks of each delta, with what it is made of; those behind what was `told` already
        of an answer with the same origin."""
        run = Run(self._loop, job, told)
        opened: set[int] = set()

        def written(delta: ChoiceDelta) -> Piece:
            opening: list[JsonObject] = []
            if delta.index not in opened:
                opened.add(delta.index)
                prompt = run.prompt_logprobs[job.prompt_of(delta.index)]
                opening = job.format.opening(delta.index, prompt)
            return Piece((*opening, *job.format.chunks(delta)), delta.made_of)

        for delta in run.tell_again():
            written(delta)  # the format counts what it has written
        async with aclosing(self._deltas(run)) as deltas:
            async for delta in deltas:
                yield written(delta)
        if job.include_usage and _OF_NO_DELTA not in told:
            yield Piece((job.format.usage_chunk(run.totals),), _OF_NO_DELTA)

    async def whole(self, job: Job) -> JsonObject:
        """The answer in one piece."""
        run = Run(self._loop, job)
        deltas_of: list[list[ChoiceDelta]] = [[] for _ in job.requests]
        async with aclosing(self._deltas(run)) as deltas:
            async for delta in deltas:
                deltas_of[delta.index].append(delta)
        prompts = [run.prompt_logprobs[job.prompt_of(index)] for index in range(len(deltas_of))]
        return job.format.whole([merged(d) for d in deltas_of], prompts, run.totals)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[JsonObject, None]:
        """Chunks for a body of any endpoint: a chat if it has messages, a response if it has input.
        For handle callers."""
        async with aclosing(self.chunks(await self.prepare(body))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def prepare(self, body: Mapping[str, Any], origin: Origin | None = None) -> Job:
        """As the others, for a body of any endpoint."""
        if not isinstance(body, Mapping):
            raise RequestError("body", f"the request must be a mapping, got {show(body)}")
        if "messages" in body:
            return await self.prepare_chat(body, origin=origin)
        if "input" in body:
            return await self.prepare_response({**body, "stream": True}, origin=origin)
        return await self.prepare_completion(body, origin=origin)

    async def _deltas(self, run: Run) -> AsyncGenerator[ChoiceDelta, None]:
        """The run's, and at their end, whatever it is, what came of the request is told."""
        try:
            async with aclosing(run.deltas()) as deltas:
                async for delta in deltas:
                    yield delta
        except BaseException as error:
            self._tell(run.record(error))
            raise
        self._tell(run.record(None))

    async def _prepared(
        self,
        prepare: Callable[[Mapping[str, Any], Origin], Awaitable[Job]],
        body: Mapping[str, Any],
        fields: tuple[str, str],
        timeout_s: float | None,
        origin: Origin | None,
    ) -> Job:
        """`fields`: what the body calls its prompt, and the length of its answer."""
        origin = origin or Origin.new()
        now, arrived_s = asyncio.get_running_loop().time(), time.monotonic()
        limits = [limit for limit in (_timeout_in(body), timeout_s) if limit is not None]
        limit = min(limits, default=self._request_timeout_s)
        deadline_s = None if limit is None else now + limit - origin.passed_s
        try:
            async with asyncio.timeout_at(deadline_s):
                job = self.limits.check(await prepare(body, origin), *fields)
        except RequestError:
            self._tell(RequestRecord(Outcome.INVALID))
            raise
        except EngineFull:
            self._tell(RequestRecord(Outcome.FULL))
            raise
        except TimeoutError:
            self._tell(RequestRecord(Outcome.DEADLINE))
            raise DeadlinePassed from None
        return dataclasses.replace(job, arrived_s=arrived_s, deadline_s=deadline_s)

    async def health(self) -> EngineStatus:
        """Raises EngineDead."""
        return await self._loop.health()


def _timeout_in(body: Mapping[str, Any]) -> float | None:
    """What it allows, if that can be told; whatever else is refused when it is read."""
    limit = body.get("timeout")
    if not isinstance(limit, int | float) or isinstance(limit, bool):
        return None
    return float(limit) if 0 < limit <= sys.float_info.max else None
