"""A draft whose head covers only some tokens."""

import shutil
from pathlib import Path

import pytest

from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.errors import ConfigError
from engine.request import GrammarSpec, Request, SamplingParams
from engine.vocabulary import FILE, read_vocabulary, vocabulary_text
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.harness import run, texts, tiny_engine
from tests.engine.quick import Witness, quick_engine
from tests.engine.tiny_models import TRIMMED
from tests.tiny import VOCAB_SIZE


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_it_says_just_what_the_target_says_where_it_can(temperature: float) -> None:
    """The draft is the target itself: a token is drafted right exactly if the head covers it, with
    the noise of the token's own id."""
    sampling = SamplingParams(max_tokens=40, temperature=temperature, seed=5, ignore_eos=True)
    engine = quick_engine("trimmed", 1)
    witness = Witness(engine)
    (outcome,) = run(engine, [Request("a", (4, 5, 6, 7), sampling)]).values()
    drafted = [draft.token_ids[0] for _, (draft,) in witness.asked if draft.token_ids]
    assert set(drafted) <= set(TRIMMED)
    at = 1  # the prompt's step brings a token without a draft
    right = 0
    for token in drafted:
        covered = outcome.tokens[at] in TRIMMED
        assert (token == outcome.tokens[at]) == covered
        right += covered
        at += 1 + covered
        if at >= len(outcome.tokens):
            break
    assert outcome.num_accepted == right > 5


def test_a_grammar_that_allows_nothing_covered_is_kept_all_the_same() -> None:
    sampling = SamplingParams(
        max_tokens=20, temperature=0.0, grammar=GrammarSpec("regex", "[!$]{6}")
    )
    request = Request("a", (4, 5, 6), sampling)
    expected = texts(run(quick_engine("none", 0), [request]))
    assert texts(run(quick_engine("trimmed", 3), [request])) == expected


def test_the_file_beside_the_draft_is_honoured(target: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(target, draft)
    kept = list(range(0, VOCAB_SIZE, 2))
    (draft / FILE).write_text(vocabulary_text(kept))
    assert read_vocabulary(draft) == kept
    engine = tiny_engine(target, draft_len=3, drafter=DrafterConfig(kind="model", model=draft))
    witness = Witness(engine)
    request = Request("a", (5, 9, 2), SamplingParams(max_tokens=30, temperature=0.0))
    outcome = run(engine, [request])["a"]
    assert outcome.tokens == texts(run(tiny_engine(target), [request]))["a"]
    drafted = {t for _, drafts in witness.asked for draft in drafts for t in draft.token_ids}
    assert drafted
    assert all(token % 2 == 0 for token in drafted)
    # It is the draft's alone: as a target the model says everything.
    assert texts(run(tiny_engine(draft), [request]))["a"] == outcome.tokens


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"token_ids": []}',
        '{"token_ids": [2, 1]}',
        '{"token_ids": [1, 1]}',
        '{"token_ids": [-1, 1]}',
        '{"token_ids": [1, 2.0]}',
        '{"token_ids": [1, true]}',
        '{"token_ids": [1, 100000]}',
    ],
)
def test_a_bad_file_is_named(content: str, target: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(target, draft)
    (draft / FILE).write_text(content)
    config = EngineConfig(
        model=target, drafter=DrafterConfig(kind="model", model=draft), dtype="float32"
    )
    with pytest.raises(ConfigError, match=rf"model {draft}: .*{FILE}") as refused:
        build_engine(config, SpeculationTable(0, fixed_rungs(2)))
    assert "\n" not in str(refused.value)
