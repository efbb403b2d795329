"""The target's words: sources in, samples out, through the engine in large batches."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from transformers import PreTrainedTokenizerFast

from engine.core import Engine
from engine.distill.samples import NUM_TOP, Sample
from engine.distill.sources import Chat, Opening, Own, Running, Source, own_prompt_ids, prompt_ids
from engine.request import Request, SamplingParams, TokenDelta, TokenLogprobs

SAMPLED_EVERY = 3
"""Of so many prompts one is answered at `TEMPERATURE` and the others greedily."""
TEMPERATURE = 0.8
_OWN_PROMPT_TOKENS = 160
_OWN_PROMPT_TOP_P = 0.9
"""At temperature 1: what users say is of many kinds, and the tail beyond this is noise."""


@dataclass(slots=True)
class _Asked:
    """A source under way."""

    source: Source
    index: int
    tokens: list[int]
    """Of the request in flight: its prompt, then what came."""
    start: int
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


class Interviewer:
    """Keeps the engine full of questions. The engine must have none of another's."""

    def __init__(
        self, engine: Engine, tokenizer: PreTrainedTokenizerFast, *, max_tokens: int, width: int
    ) -> None:
        """`width`: sources at once; `max_tokens`: of one answer."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._width = width
        self._asked: dict[str, _Asked] = {}

    def samples(self, sources: Iterable[tuple[int, Source]]) -> Iterator[list[Sample]]:
        """The samples of each numbered source, as sources get done; an empty list where one is too
        long. After every step there is a chance to stop: an empty list comes then as well."""
        waiting = iter(sources)
        while True:
            while len(self._asked) < self._width:
                numbered = next(waiting, None)
                if numbered is None:
                    break
                self._ask(*numbered)
            if not self._engine.has_work:
                return
            for delta in self._engine.step():
                done = self._hear(delta)
                if done is not None:
                    yield done
            yield []

    def _ask(self, index: int, source: Source) -> None:
        match source:
            case Chat(turns):
                prompt = prompt_ids(turns[:1], (), self._tokenizer)
            case Opening(text):
                prompt = self._tokenizer.encode(text)
            case Running(token_ids):
                prompt = list(token_ids[: self._engine.max_model_len - 1])
            case Own():
                prompt = own_prompt_ids(self._tokenizer)
        start = 1 if isinstance(source, Running) else len(prompt)
        self._submit(_Asked(source, index, prompt, start))

    def _submit(self, asked: _Asked) -> bool:
        """False for what is too long to be answered."""
        is_running = isinstance(asked.source, Running)
        room = self._engine.max_model_len - len(asked.tokens)
        if room < 1:
            return False
        if isinstance(asked.source, Own):
            sampling = SamplingParams(
                max_tokens=min(_OWN_PROMPT_TOKENS, room),
                temperature=1.0,
                top_p=_OWN_PROMPT_TOP_P,
                seed=asked.index,
            )
        else:
            sampling = SamplingParams(
                max_tokens=1 if is_running else min(self._max_tokens, room),
                temperature=0.0 if asked.index % SAMPLED_EVERY else TEMPERATURE,
                seed=asked.index,
                logprobs=None if is_running else NUM_TOP,
                prompt_logprobs=NUM_TOP if is_running else None,
            )
        request_id = f"{asked.index}-{len(asked.samples)}"
        self._engine.add(Request(request_id, tuple(asked.tokens), sampling))
        self._asked[request_id] = asked
        return True

    def _hear(self, delta: TokenDelta) -> list[Sample] | None:
        """The samples of a source that is done."""
        asked = self._asked[delta.request_id]
        asked.logprobs += delta.logprobs or delta.prompt_logprobs
        if delta.logprobs or isinstance(asked.source, Own):
            asked.tokens += delta.token_ids
        if delta.finish_reason is None:
            return None
        del self._asked[delta.request_id]
        if isinstance(asked.source, Own):
            return self._go_on_with(asked, delta.ends_with_stop_token)
        asked.samples.append(_sample(asked))
        if isinstance(asked.source, Chat):
            answer = asked.tokens[asked.start : len(asked.tokens) - delta.ends_with_stop_token]
            asked.answers.append(str(self._tokenizer.decode(answer, skip_special_tokens=True)))
            if len(asked.answers) < len(asked.source.turns):
                turns = asked.source.turns
                asked.tokens = prompt_ids(turns, asked.answers, self._tokenizer)
                asked.start, asked.logprobs = len(asked.tokens), []
                if self._submit(asked):
                    return None
        return asked.samples

    def _go_on_with(self, asked: _Asked, has_stop_token: bool) -> list[Sample] | None:
        """Have the target answer what it wrote; no samples where it wrote nothing, or a user's turn
        without an end: that is seldom one."""
        written = asked.tokens[asked.start : len(asked.tokens) - has_stop_token]
        text = str(self._tokenizer.decode(written, skip_special_tokens=True)).strip()
        is_chat = self._tokenizer.chat_template is not None
        if not text or (is_chat and not has_stop_token):
            return []
        if not is_chat:
            asked.source = Opening(text)
            asked.tokens = asked.tokens[: asked.start] + written
        else:
            asked.source = Chat((text,))
            asked.tokens = prompt_ids((text,), (), self._tokenizer)
        asked.start = len(asked.tokens)
        return None if self._submit(asked) else []


def _sample(asked: _Asked) -> Sample:
    top = asked.logprobs
    return Sample(
        asked.index,
        np.array(asked.tokens, np.int32),
        asked.start,
        np.array([[token for token, _ in one.top] for one in top], np.int32).reshape(-1, NUM_TOP),
        np.array([[lp for _, lp in one.top] for one in top], np.float16).reshape(-1, NUM_TOP),
    )
