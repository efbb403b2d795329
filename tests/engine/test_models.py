"""Architectures: served exactly as transformers runs them, or refused before anything is served."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.config import DrafterConfig
from engine.errors import ConfigError
from tests.engine.harness import greedy, run, texts, tiny_engine
from tests.tiny import NO_EOS, VOCAB_SIZE, reference_greedy
from tests.tiny_tokenizer import byte_level_tokenizer

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.25,
    **NO_EOS,
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SERVED: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": MOE,
    "mistral": {"sliding_window": 7},
    "gemma2": {"sliding_window": 7, "attn_logit_softcapping": 5.0},
    "gemma3_text": {"sliding_window": 7},
    "phi3": {},
    "olmo2": {},
    "gpt_neox": {},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.25},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "stablelm": ({}, "do not pass keyword arguments on"),
    "gpt_oss": ({"num_local_experts": 4, "num_experts_per_tok": 2}, "s_aux"),
    "diffllama": ({}, "attends more than once"),
    "falcon_h1": (
        {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8},
        "",
    ),
    "llama4_text": ({"attention_chunk_size": 8, "intermediate_size_mlp": 48, **MOE}, ""),
    "qwen2_moe": (
        {
            "sliding_window": 8,
            "use_sliding_window": True,
            "layer_types": ["full_attention", "sliding_attention"],
            "shared_expert_intermediate_size": 16,
            **MOE,
        },
        "keeps its sliding window to itself",
    ),
    "mamba": ({"state_size": 4}, ""),
}


def save(model_type: str, folder: Path, overrides: dict[str, Any]) -> Any:
    config = AutoConfig.for_model(model_type, **{**COMMON, **overrides})
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    model.train(False)
    model.save_pretrained(folder)
    byte_level_tokenizer(VOCAB_SIZE).save_pretrained(folder)
    return model


@pytest.mark.parametrize("model_type", SERVED)
def test_served_exactly(model_type: str, tmp_path: Path) -> None:
    model = save(model_type, tmp_path, SERVED[model_type])
    prompts = {"short": [3, 4], "long": [(7 * i) % 300 + 3 for i in range(40)]}
    expected = {name: reference_greedy(model, prompt, 24) for name, prompt in prompts.items()}
    engine = tiny_engine(
        tmp_path,
        draft_len=4,
        drafter=DrafterConfig(kind="model", model=tmp_path),
        max_step_tokens=16,
    )
    outcomes = run(engine, [greedy(name, prompt, 24) for name, prompt in prompts.items()])
    assert texts(outcomes) == expected
    assert outcomes["long"].num_accepted > 12


@pytest.mark.filterwarnings("ignore")  # these models' own code
@pytest.mark.parametrize("model_type", REFUSED)
def test_refused_before_anything_is_served(model_type: str, tmp_path: Path) -> None:
    overrides, reason = REFUSED[model_type]
    save(model_type, tmp_path, overrides)
    with pytest.raises(ConfigError, match=f"cannot be (served|loaded).*{reason}") as caught:
        tiny_engine(tmp_path)
    assert "\n" not in str(caught.value)


def test_longrope_is_served_up_to_its_original_context(tmp_path: Path) -> None:
    """Beyond it, the rotary factors of tokens that are cached already would have to change."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 48,
    }
    model = save(
        "phi3", tmp_path, {"rope_parameters": rope, "original_max_position_embeddings": 48}
    )
    prompt = [(7 * i) % 300 + 3 for i in range(30)]
    engine = tiny_engine(tmp_path, max_step_tokens=16)
    assert engine.max_model_len == 48
    outcome = run(engine, [greedy("a", prompt, 100)])["a"]
    assert outcome.tokens == reference_greedy(model, prompt, 18)
    with pytest.raises(ConfigError, match="the model's limit is 48"):
        tiny_engine(tmp_path, max_model_len=100)


@pytest.mark.parametrize("content", ["{", '{"eos_token_id": "x"}', '{"eos_token_id": [[1]]}', "[]"])
def test_a_damaged_generation_config_is_one_line(tmp_path: Path, content: str) -> None:
    save("qwen2", tmp_path, {})
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        tiny_engine(tmp_path)
    assert "\n" not in str(caught.value)


def test_more_kv_cache_than_memory_is_refused(tmp_path: Path) -> None:
    save("qwen2", tmp_path, {})
    with pytest.raises(ConfigError, match=r"engine\.kv_cache_mb"):
        tiny_engine(tmp_path, num_blocks=None, kv_cache_bytes=10**18)
