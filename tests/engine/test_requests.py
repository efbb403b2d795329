"""What the engine refuses, and that a refusal changes nothing."""

import pickle
from pathlib import Path

import pytest

from engine.config import DrafterConfig, EngineConfig
from engine.errors import ConfigError, EngineFull, PromptTooLong, RequestError
from engine.request import Request
from tests.engine.harness import greedy, run, tiny_engine
from tests.tiny import VOCAB_SIZE


@pytest.mark.parametrize("prompt", [(), (VOCAB_SIZE,), (3, -1)])
def test_prompts_outside_the_vocabulary(target: Path, prompt: tuple[int, ...]) -> None:
    engine = tiny_engine(target)
    with pytest.raises(RequestError) as caught:
        engine.add(Request("a", prompt))
    assert caught.value.field == "prompt"
    assert not engine.has_work


def test_a_duplicate_id_is_refused_and_the_first_goes_on(target: Path) -> None:
    engine = tiny_engine(target)
    engine.add(greedy("a", [1, 2], 5))
    with pytest.raises(RequestError, match="'a' is in flight"):
        engine.add(greedy("a", [3], 5))
    while engine.has_work:
        engine.step()
    assert len(run(engine, [greedy("a", [3], 5)])["a"].tokens) == 5


def test_a_full_queue_refuses_and_recovers(target: Path) -> None:
    engine = tiny_engine(target, max_num_seqs=1, max_num_waiting=2)
    engine.add(greedy("running", [1], 4))
    engine.step()
    engine.add(greedy("first", [1], 4))
    engine.add(greedy("second", [1], 4))
    with pytest.raises(EngineFull, match="3 requests are running or waiting"):
        engine.add(greedy("third", [1], 4))
    while engine.has_work:
        engine.step()
    engine.add(greedy("third", [1], 4))


def test_a_group_is_taken_whole_or_not_at_all(target: Path) -> None:
    engine = tiny_engine(target, max_num_seqs=1, max_num_waiting=2)
    engine.add(greedy("there", [1], 4))
    with pytest.raises(EngineFull):
        engine.add(*(greedy(f"choice {i}", [1], 4) for i in range(3)))
    assert engine.status().num_waiting == 1
    # No waiting would help this one.
    with pytest.raises(RequestError, match=r"n must be at most 3, .* got 4") as caught:
        engine.add(*(greedy(f"choice {i}", [1], 4) for i in range(4)))
    assert caught.value.field == "n"
    engine.add(greedy("choice 0", [1], 4), greedy("choice 1", [1], 4))
    assert engine.status().num_waiting == 3


@pytest.mark.parametrize(
    "overrides",
    [
        {"block_size": 0},
        {"max_num_seqs": 0},
        {"max_step_tokens": 0},
        {"max_model_len": 0},
        {"max_draft_len": -1},
    ],
)
def test_engine_config_names_the_key(overrides: dict[str, int]) -> None:
    ((key, value),) = overrides.items()
    with pytest.raises(ConfigError, match=rf"engine\.{key} must be .*{value}"):
        EngineConfig(model=Path("x"), **overrides)  # type: ignore[arg-type]


def test_drafter_config_needs_a_model_for_a_model() -> None:
    with pytest.raises(ConfigError, match=r"drafter\.model"):
        DrafterConfig(kind="model")
    with pytest.raises(ConfigError, match=r"drafter\.min_ngram"):
        DrafterConfig(min_ngram=5, max_ngram=3)


def test_a_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json there") as caught:
        tiny_engine(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / "config.json").write_text("{broken")
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        tiny_engine(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_longer_context_than_the_models_is_refused(target: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_model_len is 300; the model's limit is 256"):
        tiny_engine(target, max_model_len=300)


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(PromptTooLong("prompt", "too long")))
    assert (type(error), error.field, str(error)) == (PromptTooLong, "prompt", "too long")
