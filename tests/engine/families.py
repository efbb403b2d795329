"""Tiny random checkpoints of many architectures, small enough to build in a test."""

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from tests.tiny import NO_EOS, VOCAB_SIZE
from tests.tiny_tokenizer import byte_level_tokenizer

CONTEXT = 64
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.25,
    **NO_EOS,
}
GPT: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": CONTEXT,
    "initializer_range": 0.25,
    **NO_EOS,
}
FALCON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.25,
    "alibi": False,
    **NO_EOS,
}
BASES = {"gpt2": GPT, "gpt_bigcode": GPT, "gptj": GPT, "codegen": GPT, "falcon": FALCON}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
WINDOW = {"sliding_window": 7}
HYBRID = {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]}


def make_config(model_type: str, overrides: dict[str, Any]) -> PreTrainedConfig:
    base = BASES.get(model_type, COMMON)
    values = {**base, **overrides}
    config: PreTrainedConfig = AutoConfig.for_model(model_type, **values)
    return config


def save_config(model_type: str, folder: Path, overrides: dict[str, Any]) -> None:
    """A folder without weights: config.json and a tokenizer."""
    make_config(model_type, overrides).save_pretrained(folder)
    byte_level_tokenizer(VOCAB_SIZE).save_pretrained(folder)


def make_model(config: PreTrainedConfig) -> PreTrainedModel:
    torch.manual_seed(3)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        # Biases and scales that start as zeros and ones would hide what is done with them.
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.generation_config.eos_token_id = None  # as `generate` can't do with an empty list
    model.train(False)
    return model


def save_model(model: PreTrainedModel, folder: Path) -> None:
    model.save_pretrained(folder)
    byte_level_tokenizer(VOCAB_SIZE).save_pretrained(folder)


def save(model_type: str, folder: Path, overrides: dict[str, Any]) -> PreTrainedModel:
    model = make_model(make_config(model_type, overrides))
    save_model(model, folder)
    return model


def save_draft(
    target: PreTrainedModel, folder: Path, *, noise: float = 0.0, vocab_size: int = VOCAB_SIZE
) -> None:
    """A copy of the target that is right at times, its embedding padded or cut to `vocab_size`."""
    draft = copy.deepcopy(target)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * noise)
    draft.resize_token_embeddings(vocab_size, mean_resizing=False)
    save_model(draft, folder)
