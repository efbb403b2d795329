"""From a request's body to text, and back into OpenAI's shapes. No HTTP here.

    body --prepare--> Job --generate--> TextDelta, TextDelta, ... --> chunks, or one whole answer

`prepare` validates and tokenises; `generate` runs the job in the engine. Closing or cancelling any
generator here closes the engine's, which aborts the request and frees its blocks within a step.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from deployments.json_values import show
from deployments.openai.replies import (
    ChatFormat,
    CompletionFormat,
    CompletionTokensDetails,
    JsonObject,
    OpenAIFinishReason,
    ReplyFormat,
    Usage,
)
from deployments.openai.schemas import ChatRequest, CompletionRequest
from deployments.text.assembler import TextAssembler
from deployments.text.chat_template import render_chat
from deployments.text.detokenizer import Detokenizer
from deployments.validation import ModelNotFound
from engine.core import EngineStatus
from engine.errors import EngineDead, PromptTooLong, RequestError
from engine.request import FinishReason, Request, TokenDelta

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SHORT_TEXT_CHARACTERS = 1000
"""Tokenised where it is, in well under a millisecond; longer texts go to a thread."""


class TokenSource(Protocol):
    """What the service needs of an EngineLoop."""

    def generate(self, request: Request) -> AsyncGenerator[TokenDelta, None]: ...
    def status(self) -> EngineStatus: ...
    def check_health(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text (maybe none) and, at the end, why it ended. `usage` counts from the start."""

    text: str
    finish_reason: OpenAIFinishReason | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Job:
    """A validated, tokenised request and the way to write its answer."""

    request: Request
    stop: tuple[str, ...]
    format: ReplyFormat
    stream: bool
    include_usage: bool


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
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._vocab_size = vocab_size
        self.model_name = model_name
        self.max_model_len = max_model_len
        self.created_unix_s = int(time.time())

    async def prepare_completion(self, body: Mapping[str, Any]) -> Job:
        """Raises RequestError, ModelNotFound or PromptTooLong."""
        parsed = CompletionRequest.parse(body)
        self._check_model(parsed.model)
        prompt = parsed.prompt
        if isinstance(prompt, str):
            text = prompt
            prompt = await self._tokenised(len(text), lambda: self._encode(text, special=True))
        self._check_ids("prompt", prompt)
        return self._job(parsed, prompt, "prompt", CompletionFormat)

    async def prepare_chat(self, body: Mapping[str, Any]) -> Job:
        """Raises RequestError, ModelNotFound or PromptTooLong."""
        parsed = ChatRequest.parse(body)
        self._check_model(parsed.model)
        messages = [message.for_template() for message in parsed.messages]
        num_characters = sum(len(message.content) for message in parsed.messages)
        prompt = await self._tokenised(
            num_characters,
            # The template writes the special tokens itself.
            lambda: self._encode(render_chat(self._tokenizer, messages), special=False),
        )
        return self._job(parsed, prompt, "messages", ChatFormat)

    async def generate(self, job: Job) -> AsyncGenerator[TextDelta, None]:
        """Text as it comes: the first token at once, then whatever is waiting, together.

        Raises what the engine raises, as EngineFull before the first delta.
        """
        assembler = TextAssembler(self._detokenizer, job.stop)
        arrived = asyncio.Event()
        pump = asyncio.create_task(self._pump(job.request, assembler, arrived))
        pump.add_done_callback(lambda _: arrived.set())
        is_first = True
        try:
            while True:
                await arrived.wait()
                arrived.clear()
                has_ended = pump.done()
                text, finish_reason = assembler.take(), assembler.finish_reason
                if text or finish_reason is not None or (is_first and assembler.num_tokens):
                    is_first = False
                    yield TextDelta(
                        text, _openai_reason(finish_reason), self._usage(job, assembler)
                    )
                if finish_reason is not None:
                    return
                if has_ended:
                    pump.result()
                    raise EngineDead("the engine left the request unfinished")
        finally:
            pump.cancel()
            await asyncio.wait({pump})

    async def chunks(self, job: Job) -> AsyncGenerator[JsonObject, None]:
        """The answer as stream chunks, none before the first token is there."""
        is_open = False
        async with aclosing(self.generate(job)) as deltas:
            async for delta in deltas:
                if not is_open:
                    is_open = True
                    for chunk in job.format.opening():
                        yield chunk
                for chunk in job.format.chunks(delta.text, delta.finish_reason):
                    yield chunk
                if delta.finish_reason is not None and job.include_usage:
                    yield job.format.usage_chunk(delta.usage)

    async def whole(self, job: Job) -> JsonObject:
        """The answer in one piece."""
        texts = []
        async with aclosing(self.generate(job)) as deltas:
            async for delta in deltas:
                texts.append(delta.text)
                if delta.finish_reason is not None:
                    return job.format.whole("".join(texts), delta.finish_reason, delta.usage)
        raise AssertionError("generate ends with a finish reason or an exception")

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

    async def _pump(
        self, request: Request, assembler: TextAssembler, arrived: asyncio.Event
    ) -> None:
        """Take deltas as soon as they come, so that a stop string ends the request at once."""
        async with aclosing(self._loop.generate(request)) as deltas:
            async for delta in deltas:
                if delta.finish_reason is FinishReason.ABORT:
                    raise EngineDead("the server aborted the request")
                assembler.push(delta)
                arrived.set()
                if assembler.finish_reason is not None:
                    return

    def _job(
        self,
        parsed: CompletionRequest | ChatRequest,
        prompt: tuple[int, ...],
        field: str,
        make_format: Callable[[str, int, str], ReplyFormat],
    ) -> Job:
        if not prompt:
            raise RequestError(field, f"{field} must not be empty: it makes no token")
        room = self.max_model_len - len(prompt)
        if room < 1:
            raise PromptTooLong(
                field,
                f"{field} has {len(prompt)} tokens, which leaves no room for an answer within "
                f"the context limit of {self.max_model_len} tokens",
            )
        sampling = parsed.sampling(room)
        self._check_ids("stop_token_ids", sampling.stop_token_ids)
        request_id = uuid.uuid4().hex
        return Job(
            request=Request(request_id, prompt, sampling),
            stop=parsed.stop,
            format=make_format(request_id, int(time.time()), self.model_name),
            stream=bool(parsed.stream),
            include_usage=parsed.include_usage,
        )

    def _check_model(self, name: str) -> None:
        if name != self.model_name:
            raise ModelNotFound(
                "model", f"model {show(name)} is not served here; {show(self.model_name)} is"
            )

    def _check_ids(self, field: str, token_ids: tuple[int, ...]) -> None:
        for index, token_id in enumerate(token_ids):
            if not 0 <= token_id < self._vocab_size:
                raise RequestError(
                    field,
                    f"{field}[{index}] must be a token id between 0 and {self._vocab_size - 1}, "
                    f"got {show(token_id)}",
                )

    async def _tokenised(
        self, num_characters: int, work: Callable[[], tuple[int, ...]]
    ) -> tuple[int, ...]:
        if num_characters <= SHORT_TEXT_CHARACTERS:
            return work()
        return await asyncio.to_thread(work)

    def _encode(self, text: str, *, special: bool) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

    def _usage(self, job: Job, assembler: TextAssembler) -> Usage:
        num_prompt = len(job.request.prompt_token_ids)
        return Usage(
            prompt_tokens=num_prompt,
            completion_tokens=assembler.num_tokens,
            total_tokens=num_prompt + assembler.num_tokens,
            completion_tokens_details=CompletionTokensDetails(
                accepted_prediction_tokens=assembler.num_accepted,
                rejected_prediction_tokens=assembler.num_rejected,
            ),
        )


def _openai_reason(reason: FinishReason | None) -> OpenAIFinishReason | None:
    if reason is None:
        return None
    return "stop" if reason is FinishReason.STOP else "length"
