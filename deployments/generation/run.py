"""One run of a job in the engine: deltas of all its choices, as they come."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, TypeAlias

from cluster.metrics.definitions import Outcome
from cluster.metrics.requests import RequestRecord
from deployments.generation.choice import Choice, ChoiceDelta
from deployments.generation.errors import DeadlinePassed, GenerationFailed
from deployments.generation.job import Job
from deployments.generation.times import RequestTimes, outcome_of
from deployments.openai.replies import (
    CompletionTokensDetails,
    Metrics,
    PromptTokensDetails,
    SpeculativeDecoding,
    Totals,
    Usage,
)
from engine.core import EngineStatus
from engine.errors import EngineDead, in_one_line
from engine.request import FinishReason, GrammarSpec, Request, TokenDelta, TokenLogprobs

Told: TypeAlias = tuple[TokenDelta, ...]
"""What one delta of a choice is made of."""


class TokenSource(Protocol):
    """What the service needs of an engine: its loop, or what stands before several of them."""

    def generate(self, *requests: Request) -> AsyncGenerator[TokenDelta, None]: ...
    def abort(self, request_id: str) -> None: ...
    async def compile_grammar(self, spec: GrammarSpec) -> None: ...
    async def health(self) -> EngineStatus: ...


class Run:
    """To be iterated once. If one choice fails, all do."""

    def __init__(self, loop: TokenSource, job: Job, told: Sequence[Told] = ()) -> None:
        """`told`: what another run of the same job told, `made_of` by `made_of`: this one goes on
        behind it, after `tell_again`."""
        self._loop = loop
        self._told = told
        self._job = job
        self._choices = {
            request.request_id: Choice(index, job.readings[job.prompt_of(index)])
            for index, request in enumerate(job.requests)
        }
        self._prompts = {
            request.request_id: job.prompt_of(index) for index, request in enumerate(job.requests)
        }
        self._num_prompt_logprobs = job.num_prompt_logprobs
        self._arrived = asyncio.Event()
        self._times = RequestTimes(job.arrived_s)
        self._asked_s = time.monotonic()
        self.prompt_logprobs: list[list[TokenLogprobs]] = [[] for _ in job.readings]
        """Of each prompt: complete before the first delta of a choice of it."""

    def tell_again(self) -> Iterator[ChoiceDelta]:
        """What was told already, as it was told."""
        for made_of in self._told:
            for delta in made_of:
                self._note_prompt(delta)
                self._choices[delta.request_id].push(delta)
            yield from self._take_of({delta.request_id for delta in made_of})

    async def deltas(self) -> AsyncGenerator[ChoiceDelta, None]:
        """The first token of a choice at once, then whatever is waiting, together.

        Raises what the engine raises, as EngineFull before the first delta, GenerationFailed, and
        DeadlinePassed once the job's deadline has passed.
        """
        pump = asyncio.create_task(self._pump())
        pump.add_done_callback(lambda _: self._arrived.set())
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                has_ended = pump.done()
                for delta in self._take():
                    yield delta
                if has_ended:
                    pump.result()
                    return
        finally:
            pump.cancel()
            await asyncio.wait({pump})

    def record(self, error: BaseException | None) -> RequestRecord:
        """What came of the request, that ended with `error`, or with none. A client that leaves
        when all is there has not given up."""
        outcome = Outcome.FINISHED
        if error is not None and not all(choice.has_ended for choice in self._choices.values()):
            outcome = outcome_of(error)
        usage, speculation = self.usage, self._metrics().speculative_decoding
        return replace(
            self._times.record(outcome),
            arrived_s=self._job.arrived_s,
            prepare_s=self._asked_s - self._job.arrived_s,
            operation=self._job.format.operation,
            num_prompt_tokens=usage.prompt_tokens,
            num_cached_tokens=usage.prompt_tokens_details.cached_tokens,
            num_new_tokens=usage.completion_tokens,
            num_rounds=speculation.num_spec_steps,
            num_drafted=speculation.num_draft_tokens,
            num_accepted=speculation.num_accepted_draft_tokens,
            error=in_one_line(error) if outcome is Outcome.FAILED and error else None,
        )

    @property
    def usage(self) -> Usage:
        """Counts so far: each prompt's once, new tokens of all choices together."""
        choices = self._choices.values()
        num_new = sum(choice.num_tokens for choice in choices)
        return Usage(
            prompt_tokens=self._job.num_prompt_tokens,
            completion_tokens=num_new,
            total_tokens=self._job.num_prompt_tokens + num_new,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._num_cached),
            completion_tokens_details=CompletionTokensDetails(
                accepted_prediction_tokens=sum(choice.num_accepted for choice in choices),
                rejected_prediction_tokens=sum(choice.num_rejected for choice in choices),
            ),
        )

    @property
    def totals(self) -> Totals:
        """So far, with what the job asks to be told."""
        wanted = self._job.include_speculation_metrics
        return Totals(self.usage, self._metrics() if wanted else None)

    def _metrics(self) -> Metrics:
        choices = self._choices.values()
        steps = sum((choice.accepted_in_steps for choice in choices), Counter[int]())
        num_steps, num_drafted = steps.total(), sum(choice.num_drafted for choice in choices)
        num_accepted = sum(accepted * count for accepted, count in steps.items())
        return Metrics(
            speculative_decoding=SpeculativeDecoding(
                mean_acceptance_length=1 + num_accepted / num_steps if num_steps else None,
                draft_acceptance_rate=num_accepted / num_drafted if num_drafted else None,
                acceptance_histogram={str(key): steps[key] for key in sorted(steps)},
                num_spec_steps=num_steps,
                num_draft_tokens=num_drafted,
                num_accepted_draft_tokens=num_accepted,
            )
        )

    @property
    def _num_cached(self) -> int:
        """Of a prompt, the least over its choices: what one of them computed and another found was
        not there before."""
        least: dict[int, int] = {}
        for request_id, choice in self._choices.items():
            if choice.num_cached_tokens is not None:
                prompt = self._prompts[request_id]
                least[prompt] = min(choice.num_cached_tokens, least.get(prompt, sys.maxsize))
        return sum(least.values())

    def _note_prompt(self, delta: TokenDelta) -> None:
        self.prompt_logprobs[self._prompts[delta.request_id]] += delta.prompt_logprobs

    def _knows(self, prompt: int) -> bool:
        return len(self.prompt_logprobs[prompt]) >= self._num_prompt_logprobs[prompt]

    def _take(self) -> list[ChoiceDelta]:
        known = [name for name, prompt in self._prompts.items() if self._knows(prompt)]
        return list(self._take_of(known))

    def _take_of(self, request_ids: Iterable[str]) -> Iterator[ChoiceDelta]:
        for request_id in request_ids:
            delta = self._choices[request_id].take()
            if delta is not None:
                yield delta

    async def _pump(self) -> None:
        """Read until the end or the deadline, also while nobody takes what was read."""
        try:
            async with asyncio.timeout_at(self._job.deadline_s):
                await self._read()
        except TimeoutError:
            raise DeadlinePassed from None

    async def _read(self) -> None:
        """Read deltas as soon as they come, so that a stop string ends its choice at once."""
        requests = self._open_requests()
        num_open = len(requests)
        if num_open == 0:
            return
        async with aclosing(self._loop.generate(*requests)) as deltas:
            async for delta in deltas:
                choice = self._choices[delta.request_id]
                if choice.has_ended:
                    continue  # what the engine made before it heard of the end
                if delta.finish_reason is FinishReason.ABORT:
                    raise EngineDead("the server aborted the request")
                if delta.finish_reason is FinishReason.ERROR:
                    raise GenerationFailed(delta.error or "the request failed in the engine")
                self._times.note(delta)
                self._note_prompt(delta)
                choice.push(delta)
                self._arrived.set()
                if choice.has_ended:
                    num_open -= 1
                    if num_open == 0 and all(map(self._knows, range(self._job.num_prompts))):
                        return
                    if delta.finish_reason is None:
                        self._loop.abort(delta.request_id)
        raise EngineDead("the engine left the request unfinished")

    def _open_requests(self) -> list[Request]:
        tokens: dict[str, list[int]] = {}
        for made_of in self._told:
            for delta in made_of:
                tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
        return [
            request.continued(tuple(tokens.get(request.request_id, ())))
            for request in self._job.requests
            if not self._choices[request.request_id].has_ended
        ]
