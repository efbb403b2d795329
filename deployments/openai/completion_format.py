"""Answers of /v1/completions, written."""

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.generation.choice import ChoiceDelta
from deployments.openai.logprobs import LogprobsWriter
from deployments.openai.replies import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    JsonObject,
    PromptLogprobs,
    Totals,
)
from engine.request import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt to be shown before the answer."""

    text: str
    token_ids: tuple[int, ...]
    offsets: tuple[int, ...]
    """For each token, the characters of the text before it."""


class CompletionFormat:
    """A `ReplyFormat`."""

    ends_with_done = True
    operation = "text_completion"

    def __init__(
        self,
        request_id: str,
        created_unix_s: int,
        model: str,
        writer: LogprobsWriter,
        *,
        num_top: int | None,
        num_prompt_top: int | None,
        echoes: Sequence[Echo],
    ) -> None:
        """`num_top`: alternatives to list for each token of the text, None: no log-probabilities;
        `num_prompt_top`: the same for vLLM's `prompt_logprobs`; `echoes`: for each choice, or none
        where no prompt is to be shown."""
        self._id = f"cmpl-{request_id}"
        self._created = created_unix_s
        self._model = model
        self._writer = writer
        self._num_top = num_top
        self._num_prompt_top = num_prompt_top
        self._echoes = echoes

    def opening(self, index: int, prompt: Sequence[TokenLogprobs]) -> list[JsonObject]:
        if not self._echoes and self._num_prompt_top is None:
            return []
        choice = CompletionChoice(
            index=index,
            text=self._echoed(index),
            logprobs=self._echo_logprobs(index, prompt),
            prompt_logprobs=self._prompt_logprobs(prompt),
        )
        return [self._completion([choice])]

    def chunks(self, delta: ChoiceDelta) -> list[JsonObject]:
        choice = CompletionChoice(
            index=delta.index,
            text=delta.text,
            logprobs=self._logprobs(delta) if delta.tokens else None,
            finish_reason=delta.finish_reason,
        )
        return [self._completion([choice])]

    def usage_chunk(self, totals: Totals) -> JsonObject:
        return self._completion([], totals)

    def failure(self, error: JsonObject) -> JsonObject:
        return error

    def whole(
        self,
        choices: Sequence[ChoiceDelta],
        prompts: Sequence[Sequence[TokenLogprobs]],
        totals: Totals,
    ) -> JsonObject:
        written = [
            CompletionChoice(
                index=delta.index,
                text=self._echoed(delta.index) + delta.text,
                logprobs=_joined(self._echo_logprobs(delta.index, prompt), self._logprobs(delta)),
                finish_reason=delta.finish_reason,
                prompt_logprobs=self._prompt_logprobs(prompt),
            )
            for delta, prompt in zip(choices, prompts, strict=True)
        ]
        return self._completion(written, totals)

    def _logprobs(self, delta: ChoiceDelta) -> CompletionLogprobs | None:
        if self._num_top is None:
            return None
        num_echoed = len(self._echoed(delta.index))
        return self._writer.completion(delta.tokens, self._num_top, num_echoed)

    def _echoed(self, index: int) -> str:
        return self._echoes[index].text if self._echoes else ""

    def _echo_logprobs(
        self, index: int, prompt: Sequence[TokenLogprobs]
    ) -> CompletionLogprobs | None:
        if not self._echoes or self._num_top is None:
            return None
        echo = self._echoes[index]
        return self._writer.echoed(echo.token_ids, echo.offsets, prompt, self._num_top)

    def _prompt_logprobs(self, prompt: Sequence[TokenLogprobs]) -> PromptLogprobs | None:
        if self._num_prompt_top is None:
            return None
        return self._writer.prompt(prompt, self._num_prompt_top)

    def _completion(
        self, choices: list[CompletionChoice], totals: Totals | None = None
    ) -> JsonObject:
        return Completion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=totals.usage if totals else None,
            metrics=totals.metrics if totals else None,
        ).model_dump()


def _joined(
    first: CompletionLogprobs | None, second: CompletionLogprobs | None
) -> CompletionLogprobs | None:
    if first is None or second is None:
        return first or second
    return CompletionLogprobs(
        tokens=first.tokens + second.tokens,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        top_logprobs=first.top_logprobs + second.top_logprobs,
        text_offset=first.text_offset + second.text_offset,
    )
