"""A draft model as an F16 GGUF file, for peers that do not read Hugging Face's format."""

from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors import safe_open
from transformers import LlamaConfig

from benchmarks.peers.workers.gguf_f16 import add_f16, f16_writer, write

WEIGHTS = "model.safetensors"


class DraftFormatError(ValueError):
    """A draft that cannot be written so: one line."""


def write_draft_gguf(draft: Path, target: Path, path: Path) -> None:
    """The Llama in the folder `draft`, with the tokenizer of `target`, a GGUF file. Raises
    DraftFormatError."""
    try:
        config: Any = LlamaConfig.from_pretrained(draft)
    except (OSError, ValueError) as error:
        raise DraftFormatError(f"{draft}: {str(error).splitlines()[0]}") from error
    if config.model_type != "llama" or not (draft / WEIGHTS).is_file():
        raise DraftFormatError(f"{draft} holds no Llama in one {WEIGHTS}")
    # What the target's file says of its layers is said anew.
    writer = f16_writer(str(path), gguf.GGUFReader(target), "llama.")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    with safe_open(draft / WEIGHTS, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 (a file, which has keys but no iterator)
            weights = tensors.get_tensor(name).float()
            if name.endswith("q_proj.weight"):
                weights = _interleaved(weights, config.num_attention_heads)
            elif name.endswith("k_proj.weight"):
                weights = _interleaved(weights, config.num_key_value_heads)
            written = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if written is None:
                raise DraftFormatError(f"{draft / WEIGHTS} holds {name}, which is none of a Llama")
            add_f16(writer, written, weights.numpy())
    write(writer)


def _interleaved(weights: torch.Tensor, num_heads: int) -> torch.Tensor:
    """GGUF has the two halves that a rotary embedding turns together side by side, in each head."""
    num_outputs, num_inputs = weights.shape
    halves = weights.view(num_heads, 2, -1, num_inputs)
    return halves.transpose(1, 2).reshape(num_outputs, num_inputs)
