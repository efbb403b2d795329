"""A request, ready for the engine, and the way to read and write its answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from deployments.generation.choice import ChoiceDelta, Reading
from deployments.openai.replies import JsonObject, Totals
from engine.request import Request, TokenLogprobs


class ReplyFormat(Protocol):
    """How one request's answer is written. `prompt` holds the log-probabilities of a choice's
    prompt, from its second token on, if they were asked for."""

    @property
    def ends_with_done(self) -> bool:
        """Whether a stream over HTTP ends with the event [DONE]."""

    @property
    def operation(self) -> str:
        """What was asked for, as OpenTelemetry's conventions name it."""

    def opening(self, index: int, prompt: Sequence[TokenLogprobs]) -> list[JsonObject]:
        """Chunks before the first one of a choice."""

    def chunks(self, delta: ChoiceDelta) -> list[JsonObject]:
        """Chunks for what is new."""

    def usage_chunk(self, totals: Totals) -> JsonObject:
        """The chunk without choices that `include_usage` asks for."""

    def failure(self, error: JsonObject) -> JsonObject:
        """The last chunk of a stream that fails; `error` is OpenAI's error body."""

    def whole(
        self,
        choices: Sequence[ChoiceDelta],
        prompts: Sequence[Sequence[TokenLogprobs]],
        totals: Totals,
    ) -> JsonObject:
        """The answer that is not streamed: each choice as a single delta, beside its prompt."""


@dataclass(frozen=True, slots=True)
class Job:
    requests: tuple[Request, ...]
    """One for each choice; those of one prompt lie together, as many for each. Of them the first
    one alone asks for the prompt's log-probabilities."""
    readings: tuple[Reading, ...]
    """One for each prompt."""
    format: ReplyFormat
    stream: bool
    include_usage: bool
    include_speculation_metrics: bool = False
    deadline_s: float | None = None
    """On the event loop's clock: when the answer must be complete; None: whenever."""
    arrived_s: float = 0.0
    """When its request came, of `time.monotonic`."""

    def of(self, tenant: str) -> "Job":
        """The same job, asked for by `tenant`."""
        if not tenant:
            return self
        requests = tuple(replace(request, tenant=tenant) for request in self.requests)
        return replace(self, requests=requests)

    @property
    def num_prompts(self) -> int:
        return len(self.readings)

    @property
    def firsts(self) -> tuple[Request, ...]:
        """The first choice of each prompt."""
        return self.requests[:: len(self.requests) // self.num_prompts]

    def prompt_of(self, index: int) -> int:
        """Which prompt it is that a choice answers."""
        return index * self.num_prompts // len(self.requests)

    @property
    def num_prompt_tokens(self) -> int:
        """Of all prompts together."""
        return sum(len(request.prompt_token_ids) for request in self.firsts)

    @property
    def num_prompt_logprobs(self) -> tuple[int, ...]:
        """How many the engine will tell of each prompt: of all its tokens but the first."""
        return tuple(
            0 if request.sampling.prompt_logprobs is None else len(request.prompt_token_ids) - 1
            for request in self.firsts
        )
