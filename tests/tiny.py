"""Tiny random checkpoints (2 layers, float32), on which tokens can be compared exactly."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from tests.tiny_tokenizer import byte_level_tokenizer

VOCAB_SIZE = 384
"""Size of the byte-level tokenizer that is saved beside the weights."""

NO_EOS: dict[str, Any] = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": None}


def save_tiny_llama(folder: Path, *, seed: int = 0, **overrides: Any) -> Path:
    """Write a random Llama whose greedy texts are varied (weights far from their usual scale)."""
    config = LlamaConfig(
        **{
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "initializer_range": 0.25,
            **NO_EOS,
            **overrides,
        }
    )
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)
    byte_level_tokenizer(VOCAB_SIZE).save_pretrained(folder)
    return folder


def save_perturbed(source: Path, folder: Path, *, noise: float, seed: int = 1) -> Path:
    """Write a copy of a checkpoint with noise on its weights: a draft that is right at times."""
    model = load_reference(source)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * noise)
    model.save_pretrained(folder)
    byte_level_tokenizer(VOCAB_SIZE).save_pretrained(folder)
    return folder


def load_reference(folder: Path) -> PreTrainedModel:
    """The checkpoint as plain transformers sees it, in float32."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.train(False)
    return model


def reference_greedy(model: PreTrainedModel, prompt: list[int], max_new_tokens: int) -> list[int]:
    """What `transformers.generate` makes of one prompt, alone."""
    output: Any = model.generate(  # type: ignore[operator]
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=max_new_tokens,
        do_sample=False,
    )
    tokens: list[int] = output[0, len(prompt) :].tolist()
    return tokens
