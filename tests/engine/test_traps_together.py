"""Traps of speculative decoding, each of which has caught a serving engine: what meets in a batch.

Rows 13 to 24 of the list; 1 to 12 are in `test_traps.py`. Row 21, tensor-parallel ranks that decide
something by themselves, belongs to the tensor-parallel work: there are no ranks yet. Each test has
been seen to fail with its defence taken out.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import DrafterConfig
from engine.core import Engine
from engine.errors import ConfigError
from engine.request import Request
from policy.table import SpeculationTable
from tests.engine.conftest import PROMPTS as TEXT_PROMPTS
from tests.engine.fake_drafters import Nonsense
from tests.engine.harness import greedy, run, texts, tiny_engine
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
from tests.engine.tiny_models import CONTEXT, SHORTER_CONTEXT, VOCAB_SIZE, DrafterName
from tests.tiny import load_reference, save_tiny_llama
from tests.tiny_tokenizer import byte_fallback_tokenizer

MIXTURE: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 1e-6},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 20},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.8, "min_p": 0.05},
    {"temperature": 0.0, "repetition_penalty": 1.5},
    {"temperature": 2.0, "min_p": 0.1, "logit_bias": ((30, 4.0),)},
]


def mixture() -> list[Request]:
    return [
        request(f"{name} {index}", 12, seed=index, ignore_eos=True, **params)
        for index, params in enumerate(MIXTURE)
        for name in PROMPTS
    ]


@pytest.mark.parametrize("drafter", ["itself", "perturbed", "nonsense"])
def test_trap_13_seeds(drafter: Any) -> None:
    """The same seed gives the same tokens alone, in a batch, after preemption, and behind drafts
    that are refused; another seed gives others."""
    one, twin, other = (
        request(name, temperature=1.0, seed=seed, ignore_eos=True)
        for name, seed in (("short", 7), ("short twin", 7), ("short other", 8))
    )
    alone = list(answer(one).tokens)
    crowd = [request(f"long {i}", temperature=1.0, seed=i) for i in range(2)]
    engine = quick_engine(
        "none" if drafter == "nonsense" else drafter, 4, block_size=2, num_blocks=CONTEXT // 2
    )
    if drafter == "nonsense":
        engine._drafter = Nonsense(VOCAB_SIZE)
    waiting: list[int] = []
    batch = [one, twin, other, *crowd]
    outcomes = texts(run(engine, batch, lambda _: waiting.append(engine.status().num_waiting)))
    assert any(later > earlier for earlier, later in pairwise(waiting)), "nothing was preempted"
    assert outcomes["short"] == outcomes["short twin"] == alone
    assert outcomes["short other"] == list(answer(other).tokens) != alone


@pytest.mark.parametrize("drafter", ["ngram", "perturbed", "itself"])
@pytest.mark.parametrize("draft_len", range(9))
def test_trap_14_greedy_and_sampled_rows_together(drafter: DrafterName, draft_len: int) -> None:
    engine = quick_engine(drafter, draft_len, max_step_tokens=48, num_blocks=40)
    batch = mixture()
    assert texts(run(engine, batch)) == answers(batch)


@pytest.mark.parametrize("drafter", ["itself", "perturbed"])
def test_trap_15_rows_with_different_draft_lengths(drafter: DrafterName) -> None:
    engine = quick_engine(drafter, 8)
    batch = [
        request(f"{name} {cap}", max_draft_tokens=cap, ignore_eos=True)
        for cap in (0, 1, 5, 8)
        for name in ("short", "repeating")
    ]
    told = steps(engine, *batch)
    for one in batch:
        tokens = [t for delta in deltas_of(told, one.request_id) for t in delta.token_ids]
        assert tokens == list(answer(one).tokens)
    assert any({delta.num_drafted for delta in step} == {0, 1, 5, 8} for step in told)


def test_trap_16_preempted_or_aborted_with_drafts_pending() -> None:
    """At every step of a run some are aborted, in a pool that makes others yield."""
    batch = [request(name, 22, ignore_eos=True) for name in ("long", "repeating", "short")]
    expected = answers(batch)
    for last in range(1, 16):
        engine = quick_engine(
            "perturbed", 5, max_step_tokens=8, num_blocks=CONTEXT // 4, block_size=4
        )
        gone = [name for index, name in enumerate(PROMPTS) if (last + index) % 3]

        def abort(step: int, engine: Engine = engine, last: int = last, gone: Any = gone) -> None:
            if step == last:
                for name in gone:
                    is_in_flight = name in engine._scheduler
                    assert engine.abort(name) == is_in_flight

        outcomes = run(engine, batch, abort)  # checks the books after each step, and the pool
        for name, outcome in outcomes.items():
            if outcome.reason is None:
                assert name in gone
                assert outcome.tokens == expected[name][: len(outcome.tokens)]
            else:
                assert outcome.tokens == expected[name]
        assert not engine.abort("short")


def test_trap_17_no_draft_for_some_rows() -> None:
    """Some rows of a step have a draft and others none; and a draft is always what followed the
    last token elsewhere in its own text, never another row's."""
    batch = [request(name, 12) for name in ("short", "repeating", "long")]
    engine = quick_engine("ngram", 4)
    witness = Witness(engine)
    assert texts(run(engine, batch)) == answers(batch)
    lengths: list[list[int]] = []
    for plan, drafts in witness.asked:
        asked = [(p, list(d.token_ids)) for p, d in zip(plan.slices, drafts, strict=True)]
        lengths.append([len(draft) for part, draft in asked if part.draft_len])
        for part, draft in asked:
            text = list(part.tokens[: part.end])
            repeated, whole = [text[-1], *draft], [*text, *draft]
            found = (whole[i : i + len(repeated)] == repeated for i in range(len(text) - 1))
            assert not draft or any(found)
    assert any(0 in step and any(step) for step in lengths)


@pytest.mark.parametrize("drafter", ["perturbed", "itself"])
@pytest.mark.parametrize("draft_len", [0, 2, 8])
def test_trap_18_counts_past_the_end(drafter: DrafterName, draft_len: int) -> None:
    """Accepted + rounds = emitted, though blocks are cut by stop tokens and by `max_tokens`."""
    engine = quick_engine(drafter, draft_len)
    batch = [
        request(f"{name} {max_tokens}", max_tokens, stop_token_ids=tuple(range(40, 50)))
        for name in PROMPTS
        for max_tokens in (1, 2, 5, NEW_TOKENS)
    ]
    told = [delta for step in steps(engine, *batch) for delta in step if delta.token_ids]
    window = engine.drain_stats()
    emitted = sum(len(delta.token_ids) for delta in told)
    assert window.rounds == len(told)
    assert window.emitted_tokens == emitted == window.rounds + window.accepted_tokens
    assert window.accepted_tokens == sum(delta.num_accepted for delta in told)
    assert window.drafted_tokens == sum(delta.num_drafted for delta in told)
    assert all(delta.num_accepted <= delta.num_drafted for delta in told)
    assert engine.drain_stats().rounds == 0


def modelled_seconds(witness: Witness) -> float:
    """What the steps would take where a pass is as fast for 8 tokens as for one, and takes time in
    proportion beyond; and where a draft token costs a tenth of a pass, for however many rows."""
    seconds = 0.0
    for plan, drafts in witness.asked:
        drafted = [len(draft.token_ids) for draft in drafts]
        num_tokens = sum(drafted) + sum(part.num_tokens for part in plan.slices)
        seconds += max(1.0, num_tokens / 8) + 0.1 * max(drafted)
    return seconds


def eight_around_an_edge(
    drafter: DrafterName, rungs: tuple[tuple[int, int], ...], late: str, max_step_tokens: int
) -> tuple[Witness, set[int]]:
    """Eight requests, four of which come later, two at a time, with the prompt called `late`: what
    each step was asked, and how many draft tokens rounds have lost."""
    engine = quick_engine(drafter, max_step_tokens=max_step_tokens)
    engine.set_table(SpeculationTable(1, rungs))
    witness = Witness(engine)
    names = [late] * 4 + ["short", "repeating"] * 2
    requests = [
        request(f"{name} {index}", max_tokens, ignore_eos=True, temperature=0.7, seed=index)
        for index, (name, max_tokens) in enumerate(
            zip(names, [24, 20, 12, 20, 25, 14, 30, 35], strict=True)
        )
    ]
    lost: set[int] = set()
    arrivals = {0: 4, 3: 2, 12: 2}
    for step in range(200):
        for _ in range(arrivals.get(step, 0)):
            engine.add(requests.pop())
        for delta in engine.step():
            if delta.finish_reason is None:
                lost.add(delta.num_drafted - delta.num_accepted)
        engine.check_integrity()
    assert not requests
    assert not engine.has_work
    return witness, lost


def test_trap_19_a_batch_that_crosses_a_threshold() -> None:
    """The length is the table's for the sequences that decode, at each step, though prompts are
    being computed beside them; and where it flips to and fro, nothing is lost of what is drafted.

    Then the price, by counted steps instead of measured time: the table's run costs no more than
    that of the better of its lengths alone.
    """
    edge, length = 4, 2
    table = ((edge, length), (8, 0))
    witness, lost = eight_around_an_edge("itself", table, late="long", max_step_tokens=10)
    asked = [(plan.num_decoding, plan.draft_len) for plan, _ in witness.asked]
    for size, draft_len in asked:
        assert draft_len == (length if 1 <= size <= edge else 0)
    assert sum(earlier != later for (_, earlier), (_, later) in pairwise(asked)) >= 3
    assert lost == {0}
    mixed, never, always = (
        modelled_seconds(eight_around_an_edge("perturbed", rungs, "short", 512)[0])
        for rungs in (table, ((8, 0),), ((8, length),))
    )
    assert mixed <= min(never, always)


NEAR_TIE_BF16 = 0.0625
"""In logits: two steps of bf16 between 4 and 8, where the best ones of this model lie."""


@pytest.mark.parametrize("draft_len", [0, 4])
def test_trap_20_bf16_parts_at_near_ties_only(target: Path, draft_len: int) -> None:
    """Elsewhere all is float32 and exact. In bf16 each token is, in float32, the best behind the
    same text or within `NEAR_TIE_BF16` of it. (`test_bf16.py` does so with a trained model.)"""
    drafter = DrafterConfig(kind="model", model=target)
    engine = tiny_engine(target, draft_len=draft_len, drafter=drafter, dtype="bfloat16")
    requests = [greedy(name, prompt, 30) for name, prompt in TEXT_PROMPTS.items()]
    judge: Any = load_reference(target)
    judge.bfloat16().float()
    for name, tokens in texts(run(engine, requests)).items():
        prompt = TEXT_PROMPTS[name]
        ids = torch.tensor([prompt + tokens])
        with torch.inference_mode():
            logits = judge(input_ids=ids).logits[0, len(prompt) - 1 : -1]
        chosen = logits.gather(1, ids[0, len(prompt) :, None])[:, 0]
        assert float((logits.amax(dim=1) - chosen).max()) < NEAR_TIE_BF16


@pytest.mark.parametrize("drafter", ["smaller", "larger"])
def test_trap_22_a_draft_with_another_embedding_size(drafter: DrafterName) -> None:
    """Ids that the draft lacks occur in the texts; ids that the target lacks are never drafted."""
    batch = mixture()
    expected = answers(batch)
    assert max(max(tokens) for tokens in expected.values()) >= VOCAB_SIZE // 2
    engine = quick_engine(drafter, 4)
    witness = Witness(engine)
    assert texts(run(engine, batch)) == expected
    drafted = [
        token for _, drafts in witness.asked for draft in drafts for token in draft.token_ids
    ]
    assert drafted
    assert max(drafted) < VOCAB_SIZE


def test_trap_22_another_tokenizer_is_refused(target: Path, tmp_path: Path) -> None:
    other = save_tiny_llama(tmp_path)
    byte_fallback_tokenizer().save_pretrained(other)
    with pytest.raises(ConfigError, match=r"drafter\.model .*tokenizer differs") as caught:
        tiny_engine(target, drafter=DrafterConfig(kind="model", model=other))
    assert "\n" not in str(caught.value)


def test_trap_23_a_draft_with_a_shorter_context() -> None:
    """It drafts up to its limit, and the text goes on behind it."""
    one = request("repeating", 40, ignore_eos=True)
    engine = quick_engine("shorter", 4)
    witness = Witness(engine)
    outcome = run(engine, [one])["repeating"]
    assert outcome.tokens == list(answer(one).tokens)
    ends = [
        part.end + len(draft.token_ids)
        for plan, drafts in witness.asked
        for part, draft in zip(plan.slices, drafts, strict=True)
        if draft.token_ids
    ]
    # The last token of a draft is never computed by the draft itself.
    assert max(ends) == SHORTER_CONTEXT + 1


def test_trap_24_memory_of_target_and_draft(target: Path) -> None:
    """The pool is sized so that the caches of both fit what is set aside."""
    budget: dict[str, Any] = {"num_blocks": None, "kv_cache_bytes": 2**20}
    alone = tiny_engine(target, **budget).status().num_blocks
    both = tiny_engine(target, drafter=DrafterConfig(kind="model", model=target), **budget)
    assert both.status().num_blocks == alone // 2
    with pytest.raises(ConfigError, match="kv_cache_mb is too small"):
        tiny_engine(target, num_blocks=None, kv_cache_bytes=100)
