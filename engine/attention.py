"""Attention of packed, ragged tokens over the block pool, as a transformers attention function.

A forward's tokens of all sequences lie packed in one row: [1, N]. A batch says, for one forward,
where each token's KV goes and which slots each query may see. It is built once, before the forward,
and used by every layer. `kernels/` holds the kinds of batches there are.
"""

from collections.abc import Sequence as ReadOnly
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

from engine.interface import passed, refuse_unsupported

ATTENTION_NAME = "paceline_paged"
"""Name under which transformers finds `paged_attention`. No mask function is registered under it,
so that transformers builds no mask of its own."""


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's part of a forward: positions start..end of its tokens."""

    start: int
    num_tokens: int
    block_ids: ReadOnly[int]

    @property
    def end(self) -> int:
        return self.start + self.num_tokens


class Batch(Protocol):
    """What every layer of one forward needs."""

    def attending(self) -> AbstractContextManager[None]:
        """To be entered for the forward, in the thread that runs it."""

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layer: int,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Write the layer's new keys and values to the pool, then attend.

        query [1, H, N, D], key [1, K, N, D], value [1, K, N, E] -> [1, N, H, E], contiguous.
        """


def paged_attention(
    module: nn.Module,
    query: Tensor,  # [1, H, N, D]
    key: Tensor,  # [1, K, N, D]
    value: Tensor,  # [1, K, N, D]
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """The batch's `attend`, as transformers calls it: [1, N, H, E].

    Raises ConfigError for what would be lost silently, such as attention sinks.
    """
    refuse_unsupported(attention_mask, kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: int = module.layer_idx  # type: ignore[assignment]
    batch: Batch = passed()
    return batch.attend(query, key, value, layer, scale, sliding_window, softcap), None


def register() -> None:
    """Make `paged_attention` known to transformers; harmless when repeated."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention)
