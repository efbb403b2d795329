"""What drafts do to the books: acceptance, caches that fall behind, ends inside a block."""

from collections.abc import Sequence as ReadOnly
from pathlib import Path

import pytest

from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.errors import PromptTooLong
from engine.plan import Draft, SeqSlice
from engine.request import FinishReason, Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.conftest import NEW_TOKENS, PROMPTS
from tests.engine.harness import greedy, run, texts, tiny_engine
from tests.tiny import VOCAB_SIZE, save_tiny_llama


def set_length(engine: Engine, draft_len: int) -> None:
    engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))


@pytest.mark.parametrize("draft_len", range(1, 9))
def test_a_draft_equal_to_the_target_is_always_kept(target: Path, draft_len: int) -> None:
    """Whatever the draft's cache lacks, the bonus token above all, shows up as a lost draft."""
    engine = tiny_engine(
        target, draft_len=draft_len, drafter=DrafterConfig(kind="model", model=target)
    )
    for temperature in (0.0, 1.0):
        sampling = SamplingParams(
            max_tokens=1 + 5 * (draft_len + 1), temperature=temperature, seed=5
        )
        request = Request("a", tuple(PROMPTS["short"]), sampling)
        outcome = run(engine, [request])["a"]
        assert outcome.num_accepted == outcome.num_drafted == 5 * draft_len


def test_acceptance_survives_a_spell_without_drafts(target: Path) -> None:
    engine = tiny_engine(target, draft_len=3, drafter=DrafterConfig(kind="model", model=target))

    def pause(step: int) -> None:
        set_length(engine, 0 if 4 <= step < 9 else 3)

    outcome = run(engine, [greedy("a", PROMPTS["long"], 60)], pause)["a"]
    assert outcome.num_drafted > 20
    assert (
        outcome.num_accepted >= outcome.num_drafted - 3
    )  # the last round may be cut by max_tokens


class WrongAtSecond:
    """Proposes the target's own tokens, except for a wrong one at draft position 2."""

    def __init__(self, prompt_len: int, right: list[int]) -> None:
        self._prompt_len = prompt_len
        self._right = right

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        drafts = []
        for part in slices:
            done = len(part.tokens) - self._prompt_len
            tokens = self._right[done : done + part.draft_len]
            if len(tokens) > 1:
                tokens[1] = (tokens[1] + 1) % VOCAB_SIZE
            drafts.append(Draft(tuple(tokens)))
        return drafts


def test_rejected_tokens_leave_no_trace_in_the_cache(
    target: Path, expected: dict[str, list[int]]
) -> None:
    engine = tiny_engine(target, draft_len=5)
    engine._drafter = WrongAtSecond(len(PROMPTS["long"]), expected["long"])
    outcome = run(engine, [greedy("a", PROMPTS["long"], NEW_TOKENS)])["a"]
    assert outcome.tokens == expected["long"]
    assert 0 < outcome.num_accepted < outcome.num_drafted


class Nonsense:
    """Drafts of every kind a broken drafter may return within its contract."""

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        return [
            Draft(tuple((7 * i + len(part.tokens)) % VOCAB_SIZE for i in range(part.draft_len)))
            if len(part.tokens) % 3
            else Draft()
            for part in slices
        ]


def test_a_useless_drafter_changes_nothing(target: Path, expected: dict[str, list[int]]) -> None:
    engine = tiny_engine(target, draft_len=6)
    engine._drafter = Nonsense()
    batch = [greedy(name, prompt, NEW_TOKENS) for name, prompt in PROMPTS.items()]
    assert texts(run(engine, batch)) == expected


@pytest.mark.parametrize("draft_len", [0, 1, 3, 8])
@pytest.mark.parametrize("max_tokens", range(1, 13))
def test_max_tokens_inside_a_block(
    target: Path, expected: dict[str, list[int]], draft_len: int, max_tokens: int
) -> None:
    engine = tiny_engine(
        target, draft_len=draft_len, drafter=DrafterConfig(kind="model", model=target)
    )
    outcome = run(engine, [greedy("a", PROMPTS["long"], max_tokens)])["a"]
    assert outcome.tokens == expected["long"][:max_tokens]
    assert outcome.reason is FinishReason.LENGTH


@pytest.mark.parametrize("draft_len", [0, 1, 3, 8])
def test_eos_inside_the_kept_block(
    target: Path, expected: dict[str, list[int]], draft_len: int
) -> None:
    """Every token that greedy emits is declared a stop token in turn."""
    engine = tiny_engine(
        target, draft_len=draft_len, drafter=DrafterConfig(kind="model", model=target)
    )
    text = expected["long"]
    for stop in sorted(set(text)):
        request = greedy("a", PROMPTS["long"], NEW_TOKENS, stop_token_ids=(stop,))
        outcome = run(engine, [request])["a"]
        assert outcome.tokens == text[: text.index(stop) + 1]
        assert outcome.reason is FinishReason.STOP


def test_the_models_own_eos_ends_a_sequence(expected: dict[str, list[int]], tmp_path: Path) -> None:
    text = expected["long"]
    eos = text[7]
    folder = save_tiny_llama(tmp_path, eos_token_id=eos)
    outcome = run(tiny_engine(folder), [greedy("a", PROMPTS["long"], NEW_TOKENS)])["a"]
    assert outcome.tokens == text[: text.index(eos) + 1]
    assert outcome.reason is FinishReason.STOP


@pytest.mark.parametrize("draft_len", [0, 2, 8])
def test_accepted_plus_rounds_is_what_was_emitted(
    target: Path, draft: Path, draft_len: int
) -> None:
    engine = tiny_engine(
        target, draft_len=draft_len, drafter=DrafterConfig(kind="model", model=draft)
    )
    batch = [
        greedy(name, prompt, NEW_TOKENS, stop_token_ids=(40, 41, 42, 43))
        for name, prompt in PROMPTS.items()
    ]
    outcomes = run(engine, batch)
    window = engine.drain_stats()
    emitted = sum(len(outcome.tokens) for outcome in outcomes.values())
    assert window.emitted_tokens == emitted == window.rounds + window.accepted_tokens
    assert window.drafted_tokens >= window.accepted_tokens
    assert engine.drain_stats().rounds == 0


@pytest.mark.parametrize("draft_len", [0, 8])
def test_context_limit(target: Path, draft: Path, draft_len: int) -> None:
    engine = tiny_engine(
        target,
        draft_len=draft_len,
        drafter=DrafterConfig(kind="model", model=draft),
        max_model_len=48,
    )
    for prompt_len, max_tokens, new_tokens in [(40, 7, 7), (40, 8, 8), (40, 9, 8), (47, 5, 1)]:
        outcome = run(engine, [greedy("a", [3] * prompt_len, max_tokens)])["a"]
        assert len(outcome.tokens) == new_tokens
        assert outcome.reason is FinishReason.LENGTH
    with pytest.raises(PromptTooLong, match=r"48 tokens; .* limit of 48"):
        engine.add(greedy("a", [3] * 48, 1))


def test_the_whole_context_of_the_model_is_usable(target: Path, draft: Path) -> None:
    engine = tiny_engine(target, draft_len=5, drafter=DrafterConfig(kind="model", model=draft))
    outcome = run(engine, [greedy("a", [9, 8, 7], 1000)])["a"]
    assert len(outcome.tokens) == 256 - 3


def test_a_draft_with_a_shorter_context_stops_drafting(target: Path, tmp_path: Path) -> None:
    short = save_tiny_llama(tmp_path, max_position_embeddings=48)
    plain = run(tiny_engine(target), [greedy("a", PROMPTS["long"], 60)])["a"]
    engine = tiny_engine(target, draft_len=4, drafter=DrafterConfig(kind="model", model=short))
    outcome = run(engine, [greedy("a", PROMPTS["long"], 60)])["a"]
    assert outcome.tokens == plain.tokens
    assert 0 < outcome.num_drafted <= 9


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE // 2, VOCAB_SIZE * 2])
def test_a_draft_with_another_embedding_size(
    target: Path, expected: dict[str, list[int]], tmp_path: Path, vocab_size: int
) -> None:
    other = save_tiny_llama(tmp_path, vocab_size=vocab_size)
    engine = tiny_engine(target, draft_len=4, drafter=DrafterConfig(kind="model", model=other))
    batch = [greedy(name, prompt, NEW_TOKENS) for name, prompt in PROMPTS.items()]
    assert texts(run(engine, batch)) == expected


def test_abort_at_every_step_leaves_the_pool_whole(target: Path, draft: Path) -> None:
    for abort_after in range(1, 16):
        engine = tiny_engine(
            target,
            draft_len=5,
            drafter=DrafterConfig(kind="model", model=draft),
            max_step_tokens=8,
            num_blocks=20,
            max_model_len=80,
        )
        batch = [greedy(name, prompt, NEW_TOKENS) for name, prompt in PROMPTS.items()]

        def abort_all(step: int, engine: Engine = engine, last: int = abort_after) -> None:
            if step == last:
                for name in PROMPTS:
                    was_there = name in engine._scheduler
                    assert engine.abort(name) == was_there

        run(engine, batch, abort_all)
        assert not engine.abort("short")


def test_the_table_counts_decoding_sequences_only(target: Path) -> None:
    """While a long prompt is prefilled beside one decoding sequence, the batch size is 1."""
    engine = tiny_engine(
        target,
        drafter=DrafterConfig(kind="model", model=target),
        max_step_tokens=4,
    )
    engine.set_table(SpeculationTable(3, ((1, 5), (8, 0))))
    engine.add(greedy("decoding", [5, 6], 40))
    engine.step()
    engine.add(greedy("prefilling", PROMPTS["long"], 4))
    for _ in range(5):
        delta = next(d for d in engine.step() if d.request_id == "decoding")
        assert delta.num_drafted == 5
        assert engine.status().num_running == 2
    assert EngineConfig(model=target).max_draft_len == 8
