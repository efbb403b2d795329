"""What the engine refuses, and that a refusal changes nothing."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from engine.config import DrafterConfig, EngineConfig
from engine.errors import ConfigError, EngineFull, PromptTooLong, RequestError
from engine.request import Request, SamplingParams
from tests.engine.harness import greedy, run, tiny_engine
from tests.tiny import VOCAB_SIZE, save_tiny_llama
from tests.tiny_tokenizer import byte_fallback_tokenizer


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -3),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_p", float("nan")),
        ("top_k", -1),
        ("seed", 2**63),
        ("max_draft_tokens", -1),
    ],
)
def test_out_of_range_names_field_and_value(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{field} must.*{value}") as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field


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


def test_too_little_kv_memory_is_said(target: Path) -> None:
    with pytest.raises(ConfigError, match="kv_cache_mb is too small"):
        tiny_engine(target, num_blocks=None, kv_cache_bytes=100)


def test_a_longer_context_than_the_models_is_refused(target: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_model_len is 300; the model's limit is 256"):
        tiny_engine(target, max_model_len=300)


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(PromptTooLong("prompt", "too long")))
    assert (type(error), error.field, str(error)) == (PromptTooLong, "prompt", "too long")


def test_kv_memory_counts_target_and_draft(target: Path) -> None:
    budget: dict[str, Any] = {"num_blocks": None, "kv_cache_bytes": 2**20}
    alone = tiny_engine(target, **budget).status().num_blocks
    both = tiny_engine(target, drafter=DrafterConfig(kind="model", model=target), **budget)
    assert both.status().num_blocks == alone // 2


def test_a_draft_with_another_tokenizer_is_refused(target: Path, tmp_path: Path) -> None:
    other = save_tiny_llama(tmp_path)
    byte_fallback_tokenizer().save_pretrained(other)
    with pytest.raises(ConfigError, match=r"drafter\.model .*tokenizer differs") as caught:
        tiny_engine(target, drafter=DrafterConfig(kind="model", model=other))
    assert "\n" not in str(caught.value)
