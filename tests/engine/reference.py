"""A decoder that is slow and obvious: what each request must get, whatever the engine does.

One text at a time, plain transformers, no cache; then the sampling rule as `SamplingParams`
documents it, in python floats over a sorted vocabulary. Of the engine it uses the noise, which is
part of the rule, and grammar cursors, each fresh, for the masks.

*Near-ties.* Two ways to add up the same logits differ by some 1e-6. Where a difference of
`ROUNDING` in any logit could make another token win, the engine may rightly take that one, and all
that follows is another text: tokens from there on say nothing (`Answer.num_clear`).
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from engine.errors import GrammarError
from engine.grammar import GrammarCompiler
from engine.noise import gumbel, hashes, keys, uniform
from engine.request import FinishReason, Request, SamplingParams, TokenLogprobs

ROUNDING = 1e-4
"""Largest difference of a logit that is put down to rounding."""
LOGPROB_ROUNDING = 1e-5


@dataclass(frozen=True)
class Answer:
    """What a request must get. Row i of the log-probabilities is the whole vocabulary's."""

    tokens: tuple[int, ...]
    reason: FinishReason
    num_clear: int
    """Tokens before the first near-tie; all of them, and the reason, if there was none."""
    logprobs: tuple[list[float], ...]
    """At each new token."""
    prompt_logprobs: tuple[list[float], ...]
    """At each token of the prompt but the first."""

    @property
    def is_clear(self) -> bool:
        return self.num_clear == len(self.tokens)


class Reference:
    """Answers of one model, which is plain transformers' own and in float32."""

    def __init__(
        self, model: Any, *, eos: frozenset[int], max_len: int, grammars: GrammarCompiler
    ) -> None:
        self._model = model
        self._eos = eos
        self._max_len = max_len
        self._grammars = grammars

    def answer(self, request: Request, guess: Sequence[int] = ()) -> Answer:
        """`guess` saves time where it is right: one pass over it yields the logits of each token of
        the answer, instead of a pass for each. It changes nothing."""
        sampling, prompt = request.sampling, list(request.prompt_token_ids)
        texts = _Texts(self._model, [*prompt, *guess])
        stop_ids = set(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            stop_ids |= self._eos
        output: list[int] = []
        logprobs: list[list[float]] = []
        num_clear: int | None = None
        while (reason := self._end(request, output, stop_ids)) is None:
            try:
                allowed = self._allowed(sampling, output)
            except GrammarError:
                reason = FinishReason.ERROR
                break
            logits = texts.logits_behind(prompt + output)
            logprobs.append(log_softmax(logits))
            row = adjusted(logits, sampling, prompt, output, stop_ids, allowed)
            token, is_clear = choose(row, sampling, request.sampling.seed, len(prompt + output))
            if not is_clear and num_clear is None:
                num_clear = len(output)
            output.append(token)
        prompt_logprobs: list[list[float]] = []
        if sampling.prompt_logprobs is not None:
            prompt_logprobs = [
                log_softmax(texts.logits_behind(prompt[:end])) for end in range(1, len(prompt))
            ]
        return Answer(
            tuple(output),
            reason,
            len(output) if num_clear is None else num_clear,
            tuple(logprobs),
            tuple(prompt_logprobs),
        )

    def _end(self, request: Request, output: list[int], stop_ids: set[int]) -> FinishReason | None:
        if not output:
            return None
        if output[-1] in stop_ids:
            return FinishReason.STOP
        if self._grammar_has_ended(request.sampling, output):
            return FinishReason.STOP
        length = len(request.prompt_token_ids) + len(output)
        if len(output) == request.sampling.max_tokens or length == self._max_len:
            return FinishReason.LENGTH
        return None

    def _grammar_has_ended(self, sampling: SamplingParams, output: list[int]) -> bool:
        if sampling.grammar is None:
            return False
        try:
            allowed = self._allowed(sampling, output)
        except GrammarError:
            return False
        return allowed is None or allowed <= self._eos

    def _allowed(self, sampling: SamplingParams, output: list[int]) -> set[int] | None:
        """Tokens that the grammar lets follow; None for any."""
        if sampling.grammar is None:
            return None
        mask = self._grammars.cursor(sampling.grammar).mask(list(output))
        return None if mask is None else set(mask.nonzero().flatten().tolist())


class _Texts:
    """Logits behind the beginnings of the text looked at last; another text is another pass."""

    def __init__(self, model: Any, text: list[int]) -> None:
        self._model = model
        self._read(text)

    def logits_behind(self, tokens: list[int]) -> list[float]:
        if tokens != self._text[: len(tokens)]:
            self._read(tokens)
        return self._rows[len(tokens) - 1]

    def _read(self, text: list[int]) -> None:
        self._text = text
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([text]), use_cache=False).logits
        self._rows: list[list[float]] = logits[0].double().tolist()


def log_softmax(logits: list[float]) -> list[float]:
    largest = max(logits)
    total = largest + math.log(math.fsum(math.exp(value - largest) for value in logits))
    return [value - total for value in logits]


def adjusted(
    logits: list[float],
    sampling: SamplingParams,
    prompt: list[int],
    output: list[int],
    stop_ids: set[int],
    allowed: set[int] | None,
) -> list[float]:
    """Penalties, then logit_bias, then what must not come."""
    row = list(logits)
    for token in {*prompt, *output}:
        if row[token] > 0:
            row[token] /= sampling.repetition_penalty
        else:
            row[token] *= sampling.repetition_penalty
    for token in output:
        row[token] -= sampling.frequency_penalty
    for token in set(output):
        row[token] -= sampling.presence_penalty
    for token, bias in sampling.logit_bias:
        row[token] += bias
    forbidden = set(stop_ids) if len(output) < sampling.min_tokens else set()
    for word in sampling.bad_words:
        if [*output, word[-1]][-len(word) :] == list(word):
            forbidden.add(word[-1])
    tokens = set(range(len(row))) if allowed is None else allowed
    left = tokens - forbidden or tokens  # an answer that ends too early, rather than a broken one
    return [value if token in left else -math.inf for token, value in enumerate(row)]


def choose(
    row: list[float], sampling: SamplingParams, seed: int | None, position: int
) -> tuple[int, bool]:
    """The token, and whether it would be the same if each logit were off by `ROUNDING`."""
    penalty = sampling.repetition_penalty
    slack = ROUNDING * max(1.0, penalty, 1 / penalty)
    best = max(range(len(row)), key=lambda token: row[token])
    if sampling.temperature < 1e-5:
        return best, _lead(row) > 2 * slack
    assert seed is not None, "what the engine draws can't be known here"
    token_ids = np.arange(len(row), dtype=np.uint32)
    noise = gumbel(uniform(hashes(keys([(seed, position)]), token_ids))).tolist()
    scaled = [value / sampling.temperature for value in row]
    slack = slack / sampling.temperature + 1e-5  # the noise is in float32 too

    def race(slack: float) -> list[float]:
        left = left_by_filters(scaled, sampling, slack) | {best}
        return [
            value + noise[token] if token in left else -math.inf
            for token, value in enumerate(scaled)
        ]

    exact, with_doubtful, without_doubtful = race(0.0), race(slack), race(-slack)
    winner = exact.index(max(exact))
    is_clear = (
        _lead(with_doubtful) > 2 * slack
        and with_doubtful.index(max(with_doubtful)) == winner
        and without_doubtful.index(max(without_doubtful)) == winner
    )
    return winner, is_clear


def _lead(values: list[float]) -> float:
    first, second = sorted(values)[:-3:-1]
    return first - second


def left_by_filters(scaled: list[float], sampling: SamplingParams, slack: float) -> set[int]:
    """What min_p, top_k and top_p leave. With slack above 0 those that might be left, below 0 those
    that surely are."""
    largest = max(scaled)
    left = {token for token, value in enumerate(scaled) if value > -math.inf}
    if sampling.min_p > 0:
        floor = largest + math.log(sampling.min_p) - slack
        left = {token for token in left if scaled[token] >= floor}
    if sampling.top_k > 0:
        ranked = sorted(scaled[token] for token in left)
        left = {
            token for token in left if _num_likelier(ranked, scaled[token], slack) < sampling.top_k
        }
    if sampling.top_p < 1 and left:
        ranked = sorted(scaled[token] for token in left)
        weights = [math.exp(value - largest) for value in ranked]
        masses = [0.0, *accumulate(reversed(weights))]  # of the n likeliest
        left = {
            token
            for token in left
            if masses[_num_likelier(ranked, scaled[token], slack)] / masses[-1]
            < sampling.top_p + slack
        }
    return left


def _num_likelier(ranked: list[float], value: float, slack: float) -> int:
    """How many of `ranked`, which holds `value`, are larger by more than `slack`."""
    return len(ranked) - bisect_right(ranked, value + slack) - (slack < 0)


def check_logprobs(told: TokenLogprobs, token: int, logprobs: list[float], num_top: int) -> None:
    """Assert that what the engine told of a token is what the reference knows."""
    own = logprobs[token]
    assert told.token_id == token
    assert _is_close(told.logprob, own), (told.logprob, own)
    rounding = _rounding(own)
    surely_likelier = sum(other > own + rounding for other in logprobs)
    maybe_likelier = sum(other > own - rounding for other in logprobs)  # itself too
    assert surely_likelier < told.rank <= max(maybe_likelier, 1), (told.rank, surely_likelier)
    assert len({listed for listed, _ in told.top}) == len(told.top) == num_top
    for (listed, logprob), best in zip(told.top, sorted(logprobs)[::-1], strict=False):
        assert _is_close(logprob, logprobs[listed]), (logprob, logprobs[listed])
        assert _is_close(logprob, best), "not one of the likeliest"


def _is_close(logprob: float, expected: float) -> bool:
    return abs(logprob - expected) < _rounding(expected)


def _rounding(logprob: float) -> float:
    """Absolute and relative, as is usual for floats: 1.1e-5 was seen at -3.9."""
    return LOGPROB_ROUNDING * (1.0 + abs(logprob))
