"""The reference itself, held against transformers' own decoding and warpers, and against itself."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from engine.request import FinishReason, Request, SamplingParams
from tests.engine.reference import Reference, adjusted, choose, left_by_filters
from tests.engine.tiny_models import CONTEXT, EOS, TARGETS, TargetName, compiler, plain_model

PROMPT = (5, 17, 40, 17, 63, 90)


def reference(target: TargetName, max_len: int = CONTEXT) -> Reference:
    return Reference(plain_model(target), eos=EOS, max_len=max_len, grammars=compiler(target))


def generated(target: TargetName, max_tokens: int, **params: Any) -> list[int]:
    """What transformers makes of the prompt, greedily."""
    model = plain_model(target)
    prompt = torch.tensor([PROMPT])
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=max_tokens,
        pad_token_id=0,
        **params,
    )
    tokens: list[int] = output[0, len(PROMPT) :].tolist()
    return tokens


def greedy(target: TargetName, **params: Any) -> list[int]:
    request = Request("a", PROMPT, SamplingParams(max_tokens=24, temperature=0.0, **params))
    return list(reference(target).answer(request).tokens)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 4.0])
def test_repetition_penalty_is_that_of_transformers(target: TargetName, penalty: float) -> None:
    assert greedy(target, repetition_penalty=penalty) == generated(
        target, 24, repetition_penalty=penalty
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("min_tokens", [0, 5, 24])
def test_min_tokens_is_that_of_transformers(target: TargetName, min_tokens: int) -> None:
    """The fifth token that comes anyway is declared one that ends the text."""
    stop = greedy(target, ignore_eos=True)[4]
    ours = greedy(target, min_tokens=min_tokens, stop_token_ids=(stop,))
    assert ours == generated(target, 24, eos_token_id=[*EOS, stop], min_new_tokens=min_tokens)
    assert (len(ours) > 5) == (min_tokens >= 5)


@pytest.mark.parametrize("target", TARGETS)
def test_logit_bias_is_that_of_transformers(target: TargetName) -> None:
    bias = ((7, 6.0), (50, 4.0), (greedy(target)[0], -100.0))
    ours = greedy(target, logit_bias=bias)
    assert ours == generated(target, 24, sequence_bias=[[[token], value] for token, value in bias])
    assert ours != greedy(target)


@pytest.mark.parametrize("target", TARGETS)
def test_bad_words_are_those_of_transformers(target: TargetName) -> None:
    plain = greedy(target)
    words = ((plain[0],), tuple(plain[1:3]), tuple(plain[2:5]), (plain[7],))
    ours = greedy(target, bad_words=words)
    assert ours == generated(target, 24, bad_words_ids=[list(word) for word in words])
    assert ours != plain


@pytest.mark.parametrize("target", TARGETS)
def test_a_guess_changes_nothing(target: TargetName) -> None:
    sampling = SamplingParams(max_tokens=12, seed=3, logprobs=1, prompt_logprobs=1)
    request = Request("a", PROMPT, sampling)
    alone = reference(target).answer(request)
    wrong = [*alone.tokens[:4], 50, 51]
    for guess in (alone.tokens, wrong, [9] * 30):
        guessed = reference(target).answer(request, guess)
        assert (guessed.tokens, guessed.reason) == (alone.tokens, alone.reason)
        for ours, theirs in zip(guessed.logprobs, alone.logprobs, strict=True):
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs))


@pytest.mark.parametrize(
    ("params", "warper"),
    [
        ({"top_k": 5}, TopKLogitsWarper(5)),
        ({"top_k": 10**6}, TopKLogitsWarper(10**6)),
        ({"top_p": 0.7}, TopPLogitsWarper(0.7)),
        ({"top_p": 0.99}, TopPLogitsWarper(0.99)),
        ({"top_p": 1e-6}, TopPLogitsWarper(1e-6)),
        ({"min_p": 0.1}, MinPLogitsWarper(0.1)),
        ({"min_p": 1.0}, MinPLogitsWarper(1.0)),
    ],
)
def test_filters_are_those_of_transformers(params: dict[str, Any], warper: Any) -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        scaled = torch.randn(1, 60) * (1 + seed % 5)
        kept = warper(torch.tensor([[0]]), scaled.clone())[0] > -torch.inf
        ours = left_by_filters(scaled[0].double().tolist(), SamplingParams(**params), 0.0)
        assert ours == set(kept.nonzero().flatten().tolist())


def test_presence_and_frequency_count_the_output_alone() -> None:
    sampling = SamplingParams(presence_penalty=0.5, frequency_penalty=1.0)
    row = adjusted([0.0, 0.0, 0.0, 0.0], sampling, [0, 1], [1, 2, 2], set(), None)
    assert row == [0.0, -1.5, -2.5, 0.0]


@pytest.mark.parametrize(
    ("params", "row", "is_clear"),
    [
        ({"temperature": 0.0}, [1.0, 1.01, 0.0], True),
        ({"temperature": 0.0}, [1.0, 1.00001, 0.0], False),
        # Whether token 1 is left turns on rounding, but it would not win against token 0.
        ({"top_k": 1, "temperature": 0.01}, [9.0, 1.0, 1.00001], True),
        ({"top_k": 1}, [1.00001, 1.0, -9.0], False),
        ({"top_p": 0.5}, [0.0, 0.0, -90.0], False),
        ({"min_p": 1.0}, [3.0, 2.0, 1.0], True),
    ],
)
def test_near_ties_are_told(params: dict[str, Any], row: list[float], is_clear: bool) -> None:
    clear = [choose(row, SamplingParams(**params), seed, 5)[1] for seed in range(30)]
    assert all(clear) == is_clear


def test_reasons() -> None:
    target: TargetName = "full"
    request = Request("a", PROMPT, SamplingParams(max_tokens=5, temperature=0.0))
    answer = reference(target).answer(request)
    assert (len(answer.tokens), answer.reason) == (5, FinishReason.LENGTH)
    assert len(reference(target, max_len=8).answer(request).tokens) == 2
    stopped = replace(request.sampling, stop_token_ids=(answer.tokens[2],))
    answer = reference(target).answer(replace(request, sampling=stopped))
    assert (len(answer.tokens), answer.reason) == (3, FinishReason.STOP)
