"""Step time of the real model against batch and context, beside the roofline.

The runner is driven without an engine: random tokens at the end of sequences whose KV is filled
with noise, since no time depends on what it holds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.roofline import model_cost
from engine.config import DtypeName
from engine.kernels.compiled import CompiledForward
from engine.kv_cache import KVCache, bytes_per_block
from engine.loaded import LoadedModel
from engine.memory import available_bytes
from engine.model import context_limit
from engine.runner import RunnerInput

BLOCK_SIZE = 16
MOST_OF_MEMORY = 0.5
"""Share of the free memory that the KV may take."""


@dataclass(frozen=True, slots=True)
class Cell:
    """So many sequences, each with so many tokens, the newest included."""

    batch_size: int
    context: int

    @property
    def num_blocks(self) -> int:
        return self.batch_size * -(-self.context // BLOCK_SIZE)


class StepBench:
    """A model, and KV for the largest of `cells` that fits; what doesn't fit is in `skipped`."""

    def __init__(
        self, folder: Path, dtype: DtypeName, cells: Sequence[Cell], compile_folder: Path | None
    ) -> None:
        device = torch.device("cpu")
        loaded = LoadedModel.load(
            folder, dtype, device, lambda _: None, compile_folder=compile_folder
        )
        self.cost = model_cost(folder)
        self.is_compiled = isinstance(loaded.forward, CompiledForward)
        limit = context_limit(loaded.model)
        memory = MOST_OF_MEMORY * available_bytes(device)
        block_bytes = bytes_per_block(loaded.layers, BLOCK_SIZE, loaded.kv_dtype)
        self.skipped: dict[Cell, str] = {}
        self.cells: list[Cell] = []
        for cell in cells:
            if cell.context > limit:
                self.skipped[cell] = f"the model's limit is {limit}"
            elif (needed := cell.num_blocks * block_bytes) > memory:
                self.skipped[cell] = f"{needed / 2**30:.1f} of {memory / 2**30:.1f} GiB"
            else:
                self.cells.append(cell)
        num_blocks = max((cell.num_blocks for cell in self.cells), default=1)
        cache = KVCache(loaded.layers, num_blocks, BLOCK_SIZE, loaded.kv_dtype, device)
        for tensor in (*cache.keys, *cache.values):
            tensor.uniform_(-1, 1)  # pages never written to are all the same one, which is cached
        self._runner = loaded.runner(cache)

    def seconds(self, cell: Cell) -> float:
        """Of one decoding step."""
        num_blocks = -(-cell.context // BLOCK_SIZE)
        inputs = [
            RunnerInput(
                token_ids=[index + 1],
                start=cell.context - 1,
                block_ids=range(index * num_blocks, (index + 1) * num_blocks),
                num_logits=1,
            )
            for index in range(cell.batch_size)
        ]
        started = time.perf_counter()
        self._runner.forward(inputs)
        return time.perf_counter() - started
