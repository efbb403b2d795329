"""Architectures: served exactly as transformers runs them, up to their last position."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.config import DrafterConfig
from engine.errors import ConfigError
from engine.request import FinishReason
from tests.engine.families import CONTEXT, HYBRID, MOE, WINDOW, save, save_draft
from tests.engine.harness import greedy, run, texts, tiny_engine
from tests.tiny import VOCAB_SIZE, reference_greedy

PROMPTS = {"short": [3, 4], "long": [(7 * i) % 300 + 3 for i in range(40)]}
NEW_TOKENS = CONTEXT - 40
"""The long prompt's text ends at the last position, where tables of positions end."""

LATENT = {
    "num_key_value_heads": 4,
    "head_dim": 8,
    "q_lora_rank": 16,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 6,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
SERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, bias, one KV head": (
        "llama",
        {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1},
    ),
    "qwen2": ("qwen2", {}),
    "qwen2, window in upper layers": (
        "qwen2",
        {**WINDOW, "use_sliding_window": True, "max_window_layers": 1},
    ),
    "qwen2_moe": ("qwen2_moe", {**MOE, "shared_expert_intermediate_size": 16}),
    "qwen3": ("qwen3", {}),
    "qwen3_moe": ("qwen3_moe", MOE),
    "mistral": ("mistral", WINDOW),
    "ministral": ("ministral", HYBRID),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {**WINDOW, "attn_logit_softcapping": 5.0}),
    "gemma3_text": ("gemma3_text", HYBRID),
    "phi": ("phi", {}),
    "phi3": ("phi3", {}),
    "phi3, window": ("phi3", WINDOW),
    "opt": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.25}),
    "opt, norm after": (
        "opt",
        {
            "ffn_dim": 48,
            "word_embed_proj_dim": 16,
            "init_std": 0.25,
            "do_layer_norm_before": False,
        },
    ),
    "gpt2": ("gpt2", {}),
    "gpt_bigcode": ("gpt_bigcode", {}),
    "gpt_neox": ("gpt_neox", {}),
    "gptj": ("gptj", {"rotary_dim": 4}),
    "codegen": ("codegen", {"rotary_dim": 4}),
    "olmo": ("olmo", {"clip_qkv": 2.0}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", HYBRID),
    "olmoe": ("olmoe", MOE),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0]}),
    "starcoder2": ("starcoder2", WINDOW),
    "falcon, one KV head (7B)": (
        "falcon",
        {"multi_query": True, "new_decoder_architecture": False},
    ),
    "falcon, new decoder (40B)": (
        "falcon",
        {"num_kv_heads": 2, "new_decoder_architecture": True},
    ),
    "falcon, all KV heads": (
        "falcon",
        {
            "multi_query": False,
            "parallel_attn": False,
            "bias": True,
            "new_decoder_architecture": False,
        },
    ),
    "granite": ("granite", {"attention_multiplier": 0.3, "residual_multiplier": 0.5}),
    "granitemoe": ("granitemoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "cohere": ("cohere", {"use_qk_norm": True}),
    "cohere2": ("cohere2", HYBRID),
    "stablelm": ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True}),
    "nemotron": ("nemotron", {}),
    "glm4": ("glm4", {"eos_token_id": []}),
    "exaone4": ("exaone4", HYBRID),
    "afmoe": ("afmoe", {**MOE, **HYBRID}),
    "deepseek_v2": ("deepseek_v2", LATENT),
    "deepseek_v3": ("deepseek_v3", LATENT),
}
DRAFT_NOISE = {"llama": 0.05, "gemma2": 0.3, "opt": 0.05, "falcon, new decoder (40B)": 0.05}
ROPE: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": {
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}


def save_named(family: str, folder: Path) -> Any:
    model_type, overrides = SERVED[family]
    return save(model_type, folder, overrides)


@pytest.mark.parametrize("family", SERVED)
def test_served_exactly(family: str, tmp_path: Path) -> None:
    model = save_named(family, tmp_path)
    expected = {name: reference_greedy(model, text, NEW_TOKENS) for name, text in PROMPTS.items()}
    engine = tiny_engine(
        tmp_path, draft_len=4, drafter=DrafterConfig(kind="ngram", min_ngram=1), max_step_tokens=16
    )
    assert engine.max_model_len == CONTEXT
    requests = [greedy("short", PROMPTS["short"], NEW_TOKENS), greedy("long", PROMPTS["long"], 999)]
    outcomes = run(engine, requests)
    assert texts(outcomes) == expected
    assert outcomes["long"].reason is FinishReason.LENGTH
    assert sum(outcome.num_drafted for outcome in outcomes.values()) > 0


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE - 64, VOCAB_SIZE, VOCAB_SIZE + 64])
@pytest.mark.parametrize("family", DRAFT_NOISE)
def test_a_draft_of_the_same_family(family: str, vocab_size: int, tmp_path: Path) -> None:
    """It is right at times, and its embedding may be padded to fewer or more rows."""
    target, draft = tmp_path / "target", tmp_path / "draft"
    model = save_named(family, target)
    save_draft(model, draft, noise=DRAFT_NOISE[family], vocab_size=vocab_size)
    expected = {name: reference_greedy(model, text, NEW_TOKENS) for name, text in PROMPTS.items()}
    engine = tiny_engine(
        target,
        draft_len=4,
        drafter=DrafterConfig(kind="model", model=draft),
        max_step_tokens=16,
    )
    outcomes = run(engine, [greedy(name, text, NEW_TOKENS) for name, text in PROMPTS.items()])
    assert texts(outcomes) == expected
    accepted = sum(outcome.num_accepted for outcome in outcomes.values())
    drafted = sum(outcome.num_drafted for outcome in outcomes.values())
    assert 0 < accepted < drafted


@pytest.mark.parametrize("kind", ROPE)
def test_scaled_rotary_positions(kind: str, tmp_path: Path) -> None:
    """Up to the last position: beyond it, "dynamic" would change the factors of cached keys."""
    rope = {"rope_type": kind, "rope_theta": 10000.0, **ROPE[kind]}
    model = save("llama", tmp_path, {"rope_parameters": rope})
    engine = tiny_engine(tmp_path, max_step_tokens=16)
    assert engine.max_model_len == CONTEXT
    outcome = run(engine, [greedy("a", PROMPTS["long"], 999)])["a"]
    assert outcome.tokens == reference_greedy(model, PROMPTS["long"], NEW_TOKENS)


def test_longrope_is_served_up_to_its_original_context(tmp_path: Path) -> None:
    """Beyond it, the rotary factors of tokens that are cached already would have to change."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 48,
        "factor": CONTEXT / 48,
    }
    model = save(
        "phi3", tmp_path, {"rope_parameters": rope, "original_max_position_embeddings": 48}
    )
    prompt = PROMPTS["long"][:30]
    engine = tiny_engine(tmp_path, max_step_tokens=16)
    assert engine.max_model_len == 48
    outcome = run(engine, [greedy("a", prompt, 999)])["a"]
    assert outcome.tokens == reference_greedy(model, prompt, 18)
    with pytest.raises(ConfigError, match="the model's limit is 48"):
        tiny_engine(tmp_path, max_model_len=CONTEXT)


REMOTE_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_a_models_own_code_is_served_where_it_is_trusted(tmp_path: Path) -> None:
    model = save("llama", tmp_path, {})
    (tmp_path / "own_model.py").write_text(REMOTE_CODE)
    values = json.loads((tmp_path / "config.json").read_text())
    values["model_type"] = "own"
    values["architectures"] = ["OwnForCausalLM"]
    values["auto_map"] = {
        "AutoConfig": "own_model.OwnConfig",
        "AutoModelForCausalLM": "own_model.OwnForCausalLM",
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    engine = tiny_engine(tmp_path, trust_remote_code=True)
    outcome = run(engine, [greedy("a", PROMPTS["short"], 8)])["a"]
    assert outcome.tokens == reference_greedy(model, PROMPTS["short"], 8)
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        tiny_engine(tmp_path)
    assert "\n" not in str(caught.value)
