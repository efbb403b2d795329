"""How many KV blocks fit, on one rank."""

import os
from collections.abc import Sequence

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.kv_cache import KVCache, bytes_per_block
from engine.loaded import LoadedModel


def num_blocks_of(config: EngineConfig, loaded: Sequence[LoadedModel]) -> int:
    """Blocks that fit the memory set aside for the caches of all models of this rank together.
    Raises ConfigError when that is none to speak of."""
    if config.num_blocks is not None:
        return config.num_blocks
    block_bytes = _block_bytes(config, loaded)
    if block_bytes == 0:
        return MOST_BLOCKS  # no heads on this rank: it stores nothing
    num_blocks = config.kv_cache_bytes // block_bytes
    if num_blocks < 2:
        raise ConfigError(
            f"engine.kv_cache_mb is too small: {config.kv_cache_bytes} bytes hold {num_blocks} "
            f"blocks of {block_bytes} bytes, and 2 are needed"
        )
    return num_blocks


MOST_BLOCKS = 2**30
"""What a rank without heads would have; the others have fewer."""


def _block_bytes(config: EngineConfig, loaded: Sequence[LoadedModel]) -> int:
    return sum(bytes_per_block(one.layers, config.block_size, one.kv_dtype) for one in loaded)


def allocate(config: EngineConfig, loaded: Sequence[LoadedModel], num_blocks: int) -> list[KVCache]:
    """The caches. Raises ConfigError when there is not as much memory."""
    total = num_blocks * _block_bytes(config, loaded)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        # Pages of zeros are granted before they exist: asking for too much would end later, and
        # by the kernel's hand.
        if loaded[0].device.type == "cpu" and total > memory:
            raise MemoryError(f"this machine has {memory} bytes")
        return [
            KVCache(one.layers, num_blocks, config.block_size, one.kv_dtype, one.device)
            for one in loaded
        ]
    except (RuntimeError, MemoryError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"engine.kv_cache_mb asks for {total} bytes of KV cache: {reason}"
        ) from error
