"""Traps of speculative decoding, each of which has caught a serving engine: what one text meets.

Rows 1 to 12 of the list; 13 to 24, where requests, models and memory meet, are in
`test_traps_together.py`. Each test has been seen to fail with its defence taken out.
"""

from dataclasses import fields, replace
from typing import Any

import pytest

from deployments.text.assembler import TextAssembler
from deployments.text.detokenizer import Detokenizer
from deployments.text.stop_strings import StopRule
from engine.core import Engine
from engine.errors import PromptTooLong
from engine.request import FinishReason, GrammarSpec, Request, SamplingParams, TokenLogprobs
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.fake_drafters import Nonsense, WrongAtSecond
from tests.engine.grammar_cases import GRAMMARS
from tests.engine.harness import run, texts
from tests.engine.quick import (
    NEW_TOKENS,
    PROMPTS,
    Witness,
    answer,
    answers,
    deltas_of,
    quick_engine,
    request,
    steps,
)
from tests.engine.reference import check_logprobs
from tests.engine.tiny_models import CONTEXT, EOS, TARGETS, VOCAB_SIZE, TargetName, tokenizer

LENGTHS = [0, 1, 3, 8]


def with_wrong_drafts(requests: list[Request], draft_len: int) -> Engine:
    """An engine whose every draft is right at first and wrong from its second token on."""
    engine = quick_engine(draft_len=draft_len)
    engine._drafter = WrongAtSecond(answers(requests), VOCAB_SIZE)
    return engine


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("draft_len", [0, 5])
def test_trap_01_positions_in_a_ragged_batch(target: TargetName, draft_len: int) -> None:
    requests = [request(name) for name in PROMPTS]
    alone = {one.request_id: list(answer(one, target=target).tokens) for one in requests}
    engine = quick_engine("perturbed", draft_len, target=target)
    assert texts(run(engine, requests)) == alone


def test_trap_02_rejected_tokens_left_in_the_cache() -> None:
    requests = [request(name) for name in PROMPTS]
    outcomes = run(with_wrong_drafts(requests, 5), requests)
    assert texts(outcomes) == answers(requests)
    for outcome in outcomes.values():
        assert 0 < outcome.num_accepted < outcome.num_drafted


@pytest.mark.parametrize("draft_len", range(1, 9))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_trap_03_the_bonus_token_in_the_drafts_cache(draft_len: int, temperature: float) -> None:
    """Draft = target: whatever its cache lacks shows up as a lost draft."""
    one = request(
        "short", 1 + 5 * (draft_len + 1), temperature=temperature, seed=5, ignore_eos=True
    )
    outcome = run(quick_engine("itself", draft_len), [one])["short"]
    assert outcome.num_accepted == outcome.num_drafted == 5 * draft_len


def test_trap_04_a_spell_without_drafts() -> None:
    """After lengths 3, 0, 3 each round is what it is in a fresh engine at the same place."""
    prompt, rest = PROMPTS["repeating"], 45
    engine = quick_engine("perturbed", 3)
    engine.add(request("repeating", rest, ignore_eos=True))
    text = list(prompt)
    rounds: list[tuple[int, int]] = []
    for step in range(100):
        engine.set_table(SpeculationTable(step, fixed_rungs(0 if 4 <= step < 9 else 3)))
        if step == 9:
            resumed_at, rounds = len(text), []
        for delta in engine.step():
            text += delta.token_ids
            rounds.append((delta.num_drafted, delta.num_accepted))
    fresh = Request(
        "fresh",
        tuple(text[: resumed_at - 1]),
        SamplingParams(
            max_tokens=len(prompt) + rest - resumed_at + 1, temperature=0.0, ignore_eos=True
        ),
    )
    told = deltas_of(steps(quick_engine("perturbed", 3), fresh), "fresh")
    assert rounds == [(delta.num_drafted, delta.num_accepted) for delta in told[1:]]
    assert sum(accepted for _, accepted in rounds) > 5


@pytest.mark.parametrize("draft_len", LENGTHS)
def test_trap_05_eos_inside_the_kept_block(draft_len: int) -> None:
    """Each token that greedy decoding emits is declared a stop token in turn."""
    engine = quick_engine("itself", draft_len)
    text = list(answer(request("long")).tokens)
    for stop in sorted(set(text)):
        (*_, last) = deltas_of(steps(engine, request("long", stop_token_ids=(stop,))), "long")
        outcome = run(engine, [request("long", stop_token_ids=(stop,))])["long"]
        assert outcome.tokens == text[: text.index(stop) + 1]
        assert outcome.reason is FinishReason.STOP
        assert last.ends_with_stop_token


@pytest.mark.parametrize("draft_len", LENGTHS)
def test_trap_05_the_models_own_eos(draft_len: int) -> None:
    """Sampled texts in which EOS is likely: it ends them, unless it is to be ignored."""
    requests = [
        request(f"short {seed} {ignored}", temperature=1.0, seed=seed, ignore_eos=ignored, **LIKELY)
        for seed in range(6)
        for ignored in (False, True)
    ]
    expected = answers(requests)
    outcomes = run(quick_engine("itself", draft_len), requests)
    assert texts(outcomes) == expected
    ended = {n for n, outcome in outcomes.items() if outcome.reason is FinishReason.STOP}
    assert ended == {
        name for name, tokens in expected.items() if "False" in name and EOS & set(tokens)
    }
    assert len(ended) > 3


LIKELY: dict[str, Any] = {"logit_bias": ((min(EOS), 5.0),)}


@pytest.mark.parametrize("draft_len", LENGTHS)
def test_trap_06_a_stop_string_across_tokens(draft_len: int) -> None:
    """Every pair of neighbouring characters is the stop string in turn, and `max_tokens` ends the
    text at the very same token: the stop string counts."""
    engine = quick_engine("itself", draft_len)
    text = list(answer(request("long", ignore_eos=True)).tokens)
    for index in range(1, 12, 2):
        spoken = str(tokenizer().decode(text[: index + 1], skip_special_tokens=True))
        whole = spoken.find(spoken[-2:])
        for max_tokens in (index + 1, NEW_TOKENS):
            one = request("long", max_tokens, ignore_eos=True)
            assembler = TextAssembler(Detokenizer(tokenizer()), StopRule((spoken[-2:],)))
            shown = ""
            for delta in deltas_of(steps(engine, one), "long"):
                assembler.push(delta)
                shown += assembler.take()
            assert shown == spoken[:whole]
            assert assembler.finish_reason is FinishReason.STOP
            assert assembler.num_tokens <= index + 1
            assert assembler.num_accepted < assembler.num_tokens


@pytest.mark.parametrize("draft_len", range(9))
def test_trap_07_max_tokens_inside_a_block(draft_len: int) -> None:
    engine = quick_engine("itself", draft_len)
    text = list(answer(request("long")).tokens)
    for max_tokens in range(1, 13):
        told = deltas_of(steps(engine, request("long", max_tokens)), "long")
        assert [token for delta in told for token in delta.token_ids] == text[:max_tokens]
        assert told[-1].finish_reason is FinishReason.LENGTH
        assert sum(delta.num_drafted + 1 for delta in told) <= max_tokens, "drafted in vain"


@pytest.mark.parametrize("draft_len", [0, 8])
def test_trap_08_the_context_limit(draft_len: int) -> None:
    """Prompt + output one short of the limit, at it, beyond it; and no position behind it is ever
    computed, for a draft or otherwise."""
    engine = quick_engine("itself", draft_len)
    assert engine.max_model_len == CONTEXT
    witness = Witness(engine)
    text = list(answer(request("long", CONTEXT, ignore_eos=True)).tokens)
    room = CONTEXT - len(PROMPTS["long"])
    for max_tokens in (room - 1, room, room + 1, 10 * room):
        outcome = run(engine, [request("long", max_tokens, ignore_eos=True)])["long"]
        assert outcome.tokens == text[: min(max_tokens, room)]
        assert outcome.reason is FinishReason.LENGTH
    sampling = SamplingParams(max_tokens=5, temperature=0.0)
    assert len(run(engine, [Request("a", (3,) * (CONTEXT - 1), sampling)])["a"].tokens) == 1
    with pytest.raises(PromptTooLong, match=f"{CONTEXT} tokens; .* limit of {CONTEXT}"):
        engine.add(Request("a", (3,) * CONTEXT, sampling))
    for plan, drafts in witness.asked:
        for part, draft in zip(plan.slices, drafts, strict=True):
            assert part.end + len(draft.token_ids) < CONTEXT


PENALTIES: list[dict[str, Any]] = [
    {"presence_penalty": 2.0},
    {"presence_penalty": -2.0},
    {"frequency_penalty": 2.0},
    {"frequency_penalty": -1.0},
    {"repetition_penalty": 3.0},
    {"repetition_penalty": 0.7},
    {"presence_penalty": 1.0, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
]


@pytest.mark.parametrize("draft_len", LENGTHS[1:])
@pytest.mark.parametrize("drafts", ["right", "wrong"])
def test_trap_09_penalties_within_a_block(draft_len: int, drafts: str) -> None:
    """Each kept token counts for those behind it in the block, and no rejected one ever does."""
    requests = [
        request(f"{name} {index}", temperature=temperature, seed=index, **params)
        for index, params in enumerate(PENALTIES)
        for name, temperature in (("repeating", 0.0), ("short", 0.8))
    ]
    if drafts == "right":
        engine = quick_engine("itself", draft_len)
    else:
        engine = with_wrong_drafts(requests, draft_len)
    outcomes = run(engine, requests)
    assert texts(outcomes) == answers(requests)
    assert sum(outcome.num_accepted for outcome in outcomes.values()) > 50


@pytest.mark.parametrize("drafts", ["itself", "perturbed", "nonsense"])
@pytest.mark.parametrize("draft_len", [3, 8])
def test_trap_10_masks_at_every_position_of_a_block(drafts: Any, draft_len: int) -> None:
    """JSON schemas and other grammars, min_tokens, logit_bias and bad words, with drafts that break
    them: nonsense whatever it is, and a model's."""
    text = answer(request("long", ignore_eos=True)).tokens
    params: list[dict[str, Any]] = [
        *({"grammar": grammar} for grammar in GRAMMARS),
        {"grammar": GrammarSpec("regex", "[ab]{2,9}"), "min_tokens": 6, "temperature": 1.0},
        {"min_tokens": 9, "stop_token_ids": tuple(text[2:12])},
        {"logit_bias": tuple((token, -100.0) for token in sorted(set(text))[::2])},
        {"bad_words": (text[3:5], text[5:8], text[9:10])},
        {"bad_words": ((11, 11), (12, 11)), "logit_bias": ((11, 50.0), (12, 49.0))},
    ]
    requests = [request(f"long {i}", seed=i, **given) for i, given in enumerate(params)]
    engine = quick_engine("none" if drafts == "nonsense" else drafts, draft_len)
    if drafts == "nonsense":
        engine._drafter = Nonsense(VOCAB_SIZE)
    assert texts(run(engine, requests)) == answers(requests)


EFFECTS: dict[str, tuple[dict[str, Any], Any]] = {
    # field: (the other parameters, a value that must make a difference)
    "max_tokens": ({}, 3),
    "min_tokens": ({"stop_token_ids": tuple(range(3, 60))}, 10),
    "temperature": ({"seed": 1}, 1.5),
    "top_p": ({"temperature": 1.5, "seed": 1}, 0.1),
    "top_k": ({"temperature": 1.5, "seed": 1}, 1),
    "min_p": ({"temperature": 1.5, "seed": 1}, 0.9),
    "presence_penalty": ({}, 2.0),
    "frequency_penalty": ({}, 2.0),
    "repetition_penalty": ({}, 3.0),
    "logit_bias": ({}, ((50, 100.0),)),
    "bad_words": ({}, tuple((token,) for token in range(3, 60))),
    "seed": ({"temperature": 1.0, "seed": 1}, 2),
    "stop_token_ids": ({}, tuple(range(3, 60))),
    "ignore_eos": ({"logit_bias": ((min(EOS), 100.0),)}, True),
    "logprobs": ({}, 0),
    "prompt_logprobs": ({}, 0),
    "grammar": ({}, GrammarSpec("regex", "[ab]{2,9}")),
    "max_draft_tokens": ({}, 1),
}


@pytest.mark.parametrize("field", [field.name for field in fields(SamplingParams)])
def test_trap_11_a_parameter_accepted_and_ignored(field: str) -> None:
    """Every field makes a difference; what is out of range is refused, see `test_parameters.py`."""
    others, value = EFFECTS[field]

    def told(**params: Any) -> Any:
        one = request("repeating", **{"max_tokens": 12, **others, **params})
        engine = quick_engine("itself", 4)
        deltas = steps(engine, Request("a", one.prompt_token_ids, one.sampling))
        # How long it waited is never the same, and would pass for a difference.
        return [[delta._replace(queue_seconds=0.0) for delta in step] for step in deltas]

    assert told() == told()
    assert told() != told(**{field: value})


def test_trap_11_priority() -> None:
    """With room for one, the lowest number goes first; among equals, whoever came first."""
    engine = quick_engine(max_num_seqs=1)
    priorities = {"short": 1, "short later": 1, "long": 2, "repeating": 0}
    requests = [replace(request(name, 3), priority=value) for name, value in priorities.items()]
    ended = [
        delta.request_id
        for step in steps(engine, *requests)
        for delta in step
        if delta.finish_reason
    ]
    assert ended == ["repeating", "short", "short later", "long"]


@pytest.mark.parametrize("drafter", ["itself", "perturbed", "ngram"])
@pytest.mark.parametrize("draft_len", LENGTHS[1:])
def test_trap_12_logprobs(drafter: Any, draft_len: int) -> None:
    """Those of length 0, top-n and the prompt's included; and those of the target alone, whatever
    the parameters make of them."""
    params: dict[str, dict[str, Any]] = {
        "long": {"logprobs": 5, "prompt_logprobs": 3},
        "repeating": {"logprobs": 0, "prompt_logprobs": 0, "temperature": 1.0},
        "short": {"logprobs": 20, "temperature": 0.7, "top_p": 0.9},
        "repeating too": {"logprobs": 2, "repetition_penalty": 2.0, "logit_bias": ((9, 5.0),)},
    }
    requests = [request(name, ignore_eos=True, seed=3, **given) for name, given in params.items()]

    def told(engine: Engine, kind: str) -> dict[str, list[TokenLogprobs]]:
        deltas = steps(engine, *requests)
        return {
            one.request_id: [
                entry
                for delta in deltas_of(deltas, one.request_id)
                for entry in getattr(delta, kind)
            ]
            for one in requests
        }

    for kind in ("logprobs", "prompt_logprobs"):
        plain = told(quick_engine(), kind)
        drafted = told(quick_engine(drafter, draft_len, max_step_tokens=24), kind)
        for name, entries in plain.items():
            assert len(drafted[name]) == len(entries)
            for one, other in zip(drafted[name], entries, strict=True):
                assert (one.token_id, one.rank) == (other.token_id, other.rank)
                assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
                assert [token for token, _ in one.top] == [token for token, _ in other.top]
                values = [value for _, value in other.top]
                assert [value for _, value in one.top] == pytest.approx(values, abs=1e-5)
        for asked in requests:
            text = answer(asked).tokens if kind == "logprobs" else asked.prompt_token_ids[1:]
            rows = getattr(answer(asked), kind)
            for entry, token, row in zip(drafted[asked.request_id], text, rows, strict=False):
                check_logprobs(entry, token, row, len(entry.top))
        if kind == "prompt_logprobs":
            assert [len(entries) for entries in plain.values()] == [39, 16, 0, 0]
        else:
            assert all(len(entries) == NEW_TOKENS for entries in plain.values())
