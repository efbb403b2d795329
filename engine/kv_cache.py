"""The KV cache of one model on one rank: a pool of token slots a layer, for all sequences."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer stores for a token. `kv_heads` may be 0 on a rank."""

    kv_heads: int
    key_dim: int
    value_dim: int


class KVCache:
    """keys[layer]: [kv_heads, num_slots, key_dim], values likewise; `NativeBatch` keeps each block
    of keys as [key_dim, block_size].

    Slot of a token = its block * block_size + its offset within the block.
    """

    def __init__(
        self,
        shapes: list[LayerShape],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.num_slots = num_blocks * block_size
        # Zeros, not empty: masked slots are multiplied by a weight of 0, and 0 * NaN is NaN.
        self.keys = [
            torch.zeros(s.kv_heads, self.num_slots, s.key_dim, dtype=dtype, device=device)
            for s in shapes
        ]
        self.values = [
            torch.zeros(s.kv_heads, self.num_slots, s.value_dim, dtype=dtype, device=device)
            for s in shapes
        ]

    @property
    def dtype(self) -> torch.dtype:
        return self.keys[0].dtype


def bytes_per_block(shapes: list[LayerShape], block_size: int, dtype: torch.dtype) -> int:
    """Memory of one block over all layers, keys and values, in bytes."""
    per_token = sum(s.kv_heads * (s.key_dim + s.value_dim) for s in shapes)
    return per_token * block_size * dtype.itemsize
