"""What a step must at least do, what the machine at best does, and the time that follows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from engine.kv_cache import LayerShape

BUFFER_BYTES = 2**30
"""Far more than any cache of a CPU holds."""
MATRIX_SIZE = 1536


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured, with all threads."""

    bytes_per_second: float
    """Read from memory."""
    flops_per_second: float
    """Of a float32 product; a multiplication and an addition are two."""

    def seconds(self, work: "Work") -> float:
        """The roofline: the longer of reading and computing, each at its best."""
        return max(work.num_bytes / self.bytes_per_second, work.flops / self.flops_per_second)


@dataclass(frozen=True, slots=True)
class Work:
    """What no implementation of a step gets around."""

    num_bytes: float
    flops: float


@dataclass(frozen=True, slots=True)
class ModelCost:
    """What a dense model's tokens cost."""

    num_weights: int
    """Read by a step of any size: all layers and the head."""
    hidden_size: int
    """Values of an embedding row."""
    kv_values: int
    """Values of the KV cache for a token, over all layers."""
    query_values: int
    """Values of a token's queries, over all layers: each meets every token of the context."""

    def step(self, contexts: Sequence[int], num_tokens: int, itemsize: int) -> Work:
        """A step that computes the last `num_tokens` tokens of sequences with so many tokens.

        Weights and KV are read once, in values of `itemsize` bytes.
        """
        num_rows = len(contexts) * num_tokens
        num_values = self.num_weights + num_rows * self.hidden_size + sum(contexts) * self.kv_values
        scores = num_tokens * sum(contexts)  # the newest tokens see a few less
        # Queries times keys, and weights times values.
        flops = 2 * num_rows * self.num_weights + 4 * scores * self.query_values
        return Work(num_values * itemsize, flops)


def model_cost(folder: Path) -> ModelCost:
    """From config.json alone; no weight is loaded."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    layers = [LayerShape(kv_heads, head_dim, head_dim)] * config.num_hidden_layers
    return ModelCost(
        num_weights=_weights_read(model),
        hidden_size=config.hidden_size,
        kv_values=sum(layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in layers),
        query_values=len(layers) * heads * head_dim,
    )


def _weights_read(model: nn.Module) -> int:
    """All but the input embedding, of which a step reads single rows; the head, which may be the
    same tensor, is read whole."""
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    apart = {id(embedding.weight), id(head.weight)}
    others = sum(p.numel() for p in model.parameters() if id(p) not in apart)
    return int(others + head.weight.numel())


def read_bandwidth(tries: int = 3) -> float:
    """Bytes a second of a sum over a buffer that no cache holds: the best of some tries."""
    buffer = torch.ones(BUFFER_BYTES // 4)
    return BUFFER_BYTES / _best_seconds(lambda: buffer.sum(), tries)


def matmul_rate(tries: int = 3) -> float:
    """Floating-point operations a second of a float32 product: the best of some tries."""
    left, right = torch.rand(2, MATRIX_SIZE, MATRIX_SIZE)
    return 2 * MATRIX_SIZE**3 / _best_seconds(lambda: left @ right, tries)


def _best_seconds(work: Callable[[], object], tries: int) -> float:
    work()
    seconds = []
    for _ in range(tries):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
