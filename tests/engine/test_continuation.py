"""A request that another engine had begun: whatever it had generated, the rest is the same."""

import dataclasses
from typing import Any

import pytest

from engine.errors import RequestError
from engine.request import GrammarSpec, Request, TokenDelta
from tests.engine.grammar_cases import GRAMMARS
from tests.engine.quick import deltas_of, quick_engine, request, steps
from tests.engine.tiny_models import EOS, VOCAB_SIZE, DrafterName

NEW = 12
CASES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 5},
    "narrow": {"temperature": 0.7, "seed": 3, "top_p": 0.8, "top_k": 20, "min_p": 0.02},
    "penalties": {
        "temperature": 1.0,
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.3,
    },
    "repetition, greedy": {"repetition_penalty": 1.5},
    "min_tokens": {"temperature": 1.0, "seed": 9, "min_tokens": 9, "logit_bias": ((1, 3.0),)},
    "logprobs": {"temperature": 1.0, "seed": 2, "logprobs": 3},
    "bad words": {"temperature": 1.0, "seed": 4, "bad_words": ((40,), (50, 51), (60, 61, 62))},
}
DRAFTS: list[tuple[DrafterName, int]] = [("none", 0), ("ngram", 3), ("perturbed", 4)]


def whole(asked: Request) -> list[TokenDelta]:
    return deltas_of(steps(quick_engine(), asked), asked.request_id)


def tokens_of(deltas: list[TokenDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


def from_token(asked: Request, tokens: list[int], known: int) -> Request:
    return dataclasses.replace(asked, generated_token_ids=tuple(tokens[:known]))


def check_every_continuation(asked: Request, drafter: DrafterName, draft_len: int) -> None:
    """All of them in one engine: each tells what the undisturbed request told from there on."""
    told = whole(asked)
    tokens = tokens_of(told)
    logprobs = [entry for delta in told for entry in delta.logprobs]
    assert len(tokens) > 1
    parts = [
        dataclasses.replace(from_token(asked, tokens, known), request_id=f"{known}")
        for known in range(len(tokens))
    ]
    heard = steps(quick_engine(drafter, draft_len), *parts)
    for known in range(len(tokens)):
        deltas = deltas_of(heard, f"{known}")
        assert tokens_of(deltas) == tokens[known:]
        assert deltas[-1].finish_reason is told[-1].finish_reason
        assert deltas[-1].ends_with_stop_token == told[-1].ends_with_stop_token
        found = [entry for delta in deltas for entry in delta.logprobs]
        expected = logprobs[known:]
        assert [entry.token_id for entry in found] == [entry.token_id for entry in expected]
        assert [entry.rank for entry in found] == [entry.rank for entry in expected]
        for entry, other in zip(found, expected, strict=True):
            assert entry.logprob == pytest.approx(other.logprob, abs=1e-4)


@pytest.mark.parametrize(("drafter", "draft_len"), DRAFTS)
@pytest.mark.parametrize("case", CASES)
def test_the_rest_is_the_same(case: str, drafter: DrafterName, draft_len: int) -> None:
    check_every_continuation(request("short", NEW, **CASES[case]), drafter, draft_len)


@pytest.mark.parametrize("spec", list(GRAMMARS), ids=lambda spec: f"{spec.kind} {spec.source[:12]}")
def test_the_rest_follows_the_grammar(spec: GrammarSpec) -> None:
    seeds = (request("short", 30, temperature=1.0, seed=n, grammar=spec) for n in range(20))
    asked = next(one for one in seeds if len(tokens_of(whole(one))) > 1)
    check_every_continuation(asked, "ngram", 3)


def test_an_end_is_found_where_it_was() -> None:
    """A stop token counts from the output's beginning, though the beginning is known already."""
    plain = tokens_of(whole(request("long", NEW)))
    stop = plain[5]
    asked = request("long", NEW, stop_token_ids=(stop,), min_tokens=5)
    check_every_continuation(asked, "ngram", 3)


def test_it_is_preempted_and_goes_on() -> None:
    asked = request("long", NEW, temperature=1.0, seed=6)
    tokens = tokens_of(whole(asked))
    others = [request(f"long {i}", NEW, temperature=1.0, seed=i) for i in range(3)]
    engine = quick_engine("perturbed", 3, num_blocks=19)
    heard = steps(engine, *others, from_token(asked, tokens, 5))
    assert tokens_of(deltas_of(heard, "long")) == tokens[5:]


def test_known_tokens_are_no_hits_of_the_prompt() -> None:
    """Where the prefix cache has more than the prompt, because it was begun here."""
    engine = quick_engine()
    asked = request("long", NEW)
    tokens = tokens_of(deltas_of(steps(engine, asked), "long"))
    steps(engine, dataclasses.replace(asked, request_id="2", generated_token_ids=tuple(tokens[:9])))
    status = engine.status()
    assert status.prefix_cache_hits == len(asked.prompt_token_ids)
    assert status.prefix_cache_queries == 2 * len(asked.prompt_token_ids)


@pytest.mark.parametrize(
    ("params", "known", "says"),
    [
        ({}, (VOCAB_SIZE,), "outside the vocabulary"),
        ({}, (5, min(EOS)), "end with stop"),
        ({"max_tokens": 2}, (5, 6), "end with length"),
        ({"temperature": 1.0}, (5,), "same seed"),
        ({"prompt_logprobs": 1}, (5,), "log-probabilities"),
        ({"grammar": GrammarSpec("choice", '["yes"]')}, (5,), "grammar"),
    ],
)
def test_what_cannot_have_been_generated_is_refused(
    params: dict[str, Any], known: tuple[int, ...], says: str
) -> None:
    asked = dataclasses.replace(request("short", **params), generated_token_ids=known)
    engine = quick_engine()
    with pytest.raises(RequestError, match=says) as caught:
        engine.add(asked)
    assert caught.value.field == "generated_token_ids"
    assert not engine.has_work
