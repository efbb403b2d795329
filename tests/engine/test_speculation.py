"""What speculation does to the books. The traps that it lays are in `test_traps.py`."""

from pathlib import Path

from engine.config import DrafterConfig, EngineConfig
from engine.request import FinishReason
from policy.table import SpeculationTable
from tests.engine.conftest import NEW_TOKENS, PROMPTS
from tests.engine.fake_drafters import Nonsense
from tests.engine.harness import greedy, run, texts, tiny_engine
from tests.tiny import VOCAB_SIZE, save_tiny_llama


def test_a_useless_drafter_changes_nothing(target: Path, expected: dict[str, list[int]]) -> None:
    engine = tiny_engine(target, draft_len=6)
    engine._drafter = Nonsense(VOCAB_SIZE)
    batch = [greedy(name, prompt, NEW_TOKENS) for name, prompt in PROMPTS.items()]
    assert texts(run(engine, batch)) == expected


def test_a_request_may_switch_its_own_drafts_off_and_nobody_elses(
    target: Path, expected: dict[str, list[int]]
) -> None:
    engine = tiny_engine(target, draft_len=3, drafter=DrafterConfig(kind="model", model=target))
    off, *others = PROMPTS
    batch = [
        greedy(name, prompt, NEW_TOKENS, max_draft_tokens=0 if name == off else None)
        for name, prompt in PROMPTS.items()
    ]
    outcomes = run(engine, batch)
    assert texts(outcomes) == expected
    assert outcomes[off].num_drafted == 0
    assert all(outcomes[name].num_drafted > 0 for name in others)


def test_the_models_own_eos_is_read_from_its_config(
    expected: dict[str, list[int]], tmp_path: Path
) -> None:
    text = expected["long"]
    eos = text[7]
    folder = save_tiny_llama(tmp_path, eos_token_id=eos)
    outcome = run(tiny_engine(folder), [greedy("a", PROMPTS["long"], NEW_TOKENS)])["a"]
    assert outcome.tokens == text[: text.index(eos) + 1]
    assert outcome.reason is FinishReason.STOP


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
