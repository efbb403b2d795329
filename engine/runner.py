"""One model with its KV cache: packed tokens of many sequences in, logits of some rows out."""

from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from engine.attention import Batch, Span
from engine.kernels.gathered import GatheredBatch
from engine.kv_cache import KVCache
from engine.sampling import Choose, choose


@dataclass(frozen=True, slots=True)
class RunnerInput:
    """One sequence's part of a forward."""

    token_ids: ReadOnly[int]
    start: int
    """Position of the first of them."""
    block_ids: ReadOnly[int]
    num_logits: int
    """How many of the last tokens' logits are wanted."""


BuildBatch = Callable[[KVCache, ReadOnly[Span], torch.device], Batch]


class Forward(Protocol):
    """A model's forward over packed tokens."""

    def __call__(self, token_ids: Tensor, positions: Tensor, rows: Tensor, batch: Batch) -> Tensor:
        """Logits [rows, vocab] of some of the tokens: token_ids and positions [1, N], rows [R]."""


class EagerForward:
    """The model's own."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __call__(self, token_ids: Tensor, positions: Tensor, rows: Tensor, batch: Batch) -> Tensor:
        with batch.attending():
            output = self._model(
                input_ids=token_ids,
                position_ids=positions,
                use_cache=False,
                logits_to_keep=rows,
            )
        logits: Tensor = output.logits[0]
        return logits


class ModelRunner:
    """The only one to touch the weights and the KV tensors of its model."""

    def __init__(
        self,
        forward: Forward,
        cache: KVCache,
        device: torch.device,
        build_batch: BuildBatch = GatheredBatch.build,
        choose: Choose = choose,
    ) -> None:
        self._forward = forward
        self._build_batch = build_batch
        self._cache = cache
        self.device = device
        self.choose = choose
        """Turns logits into tokens."""

    @torch.inference_mode()
    def forward(self, inputs: ReadOnly[RunnerInput]) -> Tensor:
        """Logits [sum of num_logits, vocab] in the inputs' order, in the model's dtype."""
        token_ids = [token for part in inputs for token in part.token_ids]
        positions = [
            position
            for part in inputs
            for position in range(part.start, part.start + len(part.token_ids))
        ]
        rows: list[int] = []
        end = 0
        for part in inputs:
            end += len(part.token_ids)
            rows.extend(range(end - part.num_logits, end))
        spans = [Span(part.start, len(part.token_ids), part.block_ids) for part in inputs]
        return self._forward(
            self._row(token_ids),
            self._row(positions),
            torch.tensor(rows, dtype=torch.long, device=self.device),
            self._build_batch(self._cache, spans, self.device),
        )

    def _row(self, values: list[int]) -> Tensor:
        return torch.tensor([values], dtype=torch.long, device=self.device)
