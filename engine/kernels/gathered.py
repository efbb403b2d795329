"""Attention over the block pool as batched products of torch: on any device, and the reference.

Shape legend: N packed tokens, B sequences of a group, T queries of a sequence, S key slots,
H query heads, K KV heads, G = H / K query heads that share one, D head dim, b blocks of a sequence.
"""

from collections.abc import Iterator
from collections.abc import Sequence as ReadOnly
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from engine.attention import Span
from engine.interface import passing
from engine.kv_cache import KVCache

MAX_SCORES = 2**20
"""Queries times slots of one product; longer prefill chunks are cut to stay below. With 32 heads in
float32 that is 128 MiB of attention scores."""

MAX_PADDING = 1.5
"""Sequences share a padded product while it computes at most so many times what they need, ..."""

FREE_PADDING = 4096
"""... or at most so many scores (queries times slots) more: about what a product costs to begin."""


@dataclass(slots=True)
class QueryGroup:
    """Queries that are attended in one batched product, padded to T queries and S slots each."""

    rows: slice | Tensor
    """Where the B * T queries lie among the N packed tokens (padding repeats a real one)."""
    kept: Tensor | None
    """Which of the B * T results are real; None: all."""
    blocks: slice | Tensor
    """The B * b blocks, block-major within a sequence; a slice where they are consecutive."""
    positions: Tensor  # [B, T]
    last_position: int
    num_slots: int  # S
    _bias: dict[tuple[int | None, int, int], Tensor] = field(default_factory=dict)

    @property
    def sees_all(self) -> bool:
        """Whether every query sees every slot: a lone decoding sequence, read to its last token."""
        return self.positions.numel() == 1 and self.num_slots == self.last_position + 1

    def bias(self, window: int | None, kv_heads: int, group_size: int) -> Tensor | None:
        """0 where a query may look, -inf elsewhere: [K * B, G * T, S], built once a forward.

        None where there is nothing to hide.
        """
        if self.sees_all and (window is None or window > self.last_position):
            return None
        key = (window, kv_heads, group_size)
        if key not in self._bias:
            slots = torch.arange(self.num_slots, device=self.positions.device)
            hidden = slots > self.positions[..., None]  # [B, T, S]
            if window is not None:
                hidden |= slots <= self.positions[..., None] - window
            bias = torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, -torch.inf)
            self._bias[key] = bias.repeat(kv_heads, group_size, 1)
        return self._bias[key]


@dataclass(slots=True)
class GatheredBatch:
    """A `Batch` whose attention is batched products over copies, or views, of keys and values."""

    cache: KVCache
    write_slots: slice | Tensor  # [N]
    groups: list[QueryGroup]

    @classmethod
    def build(cls, cache: KVCache, spans: ReadOnly[Span], device: torch.device) -> "GatheredBatch":
        """`spans` in the order in which their tokens are packed."""
        size = cache.block_size
        slots = [
            span.block_ids[position // size] * size + position % size
            for span in spans
            for position in range(span.start, span.end)
        ]
        groups = [_group(rows, part, cache, device) for rows, part in _partition(spans)]
        return cls(cache, _index(slots, device), groups)

    @contextmanager
    def attending(self) -> Iterator[None]:
        """See `Batch`."""
        with passing(self):
            yield

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
        """See `Batch`."""
        cache = self.cache
        keys, values = cache.keys[layer], cache.values[layer]
        _write(keys, self.write_slots, key[0])
        _write(values, self.write_slots, value[0])
        num_heads, num_tokens = query.shape[1], query.shape[2]
        if num_heads == 0:  # a rank of an uneven tensor-parallel split may hold none
            return query.new_zeros(1, num_tokens, 0, value.shape[-1])
        packed = query[0].to(cache.dtype)

        def attend_group(group: QueryGroup) -> Tensor:
            return _attend(group, packed, keys, values, cache.block_size, scale, window, softcap)

        if len(self.groups) == 1 and self.groups[0].kept is None:
            result = attend_group(self.groups[0])
        else:
            result = packed.new_empty(num_tokens, num_heads, values.shape[-1])
            for group in self.groups:
                part = attend_group(group)
                if group.kept is None:
                    result[group.rows] = part
                else:
                    rows = torch.as_tensor(_materialise(group.rows, part.device))[group.kept]
                    result[rows] = part[group.kept]
        # Models take a view of it, as that of transformers' own functions is contiguous.
        return result.to(query.dtype).contiguous().unsqueeze(0)


def _partition(spans: ReadOnly[Span]) -> list[tuple[list[int], list[Span]]]:
    """Groups as (first packed row of each span, spans): like with like, too long ones cut."""
    groups: list[list[tuple[int, Span]]] = []
    whole: list[tuple[int, Span]] = []
    row = 0
    for span in spans:
        step = max(1, MAX_SCORES // span.end)
        if span.num_tokens <= step:
            whole.append((row, span))
        else:
            for offset in range(0, span.num_tokens, step):
                num_tokens = min(step, span.num_tokens - offset)
                part = Span(span.start + offset, num_tokens, span.block_ids)
                groups.append([(row + offset, part)])
        row += span.num_tokens
    if whole and _fits(len(whole), *_extent(whole)):
        groups.append(whole)
    else:
        groups += _split(sorted(whole, key=lambda part: (part[1].num_tokens, part[1].end)))
    return [([row for row, _ in group], [span for _, span in group]) for group in groups]


def _split(parts: list[tuple[int, Span]]) -> list[list[tuple[int, Span]]]:
    """Cut a sorted list wherever one more part would make its group pad too much."""
    groups: list[list[tuple[int, Span]]] = []
    num_queries = num_slots = needed = 0
    for part in parts:
        span = part[1]
        num_queries, num_slots = max(num_queries, span.num_tokens), max(num_slots, span.end)
        needed += span.num_tokens * span.end
        if groups and _fits(len(groups[-1]) + 1, num_queries, num_slots, needed):
            groups[-1].append(part)
        else:
            groups.append([part])
            num_queries, num_slots = span.num_tokens, span.end
            needed = num_queries * num_slots
    return groups


def _extent(parts: list[tuple[int, Span]]) -> tuple[int, int, int]:
    """Most queries and most slots of any part, and the scores that all of them need."""
    spans = [span for _, span in parts]
    return (
        max(span.num_tokens for span in spans),
        max(span.end for span in spans),
        sum(span.num_tokens * span.end for span in spans),
    )


def _fits(count: int, num_queries: int, num_slots: int, needed: int) -> bool:
    """Whether a padded product of `count` parts is worth it, and small enough to hold."""
    padded = count * num_queries * num_slots
    return padded <= MAX_SCORES and padded <= max(MAX_PADDING * needed, needed + FREE_PADDING)


def _group(
    first_rows: list[int], spans: list[Span], cache: KVCache, device: torch.device
) -> QueryGroup:
    longest = max(span.num_tokens for span in spans)  # T
    num_blocks = max(-(-span.end // cache.block_size) for span in spans)  # b
    rows, positions, kept, blocks = [], [], [], []
    for first, span in zip(first_rows, spans, strict=True):
        for query in range(longest):
            real = min(query, span.num_tokens - 1)
            rows.append(first + real)
            positions.append(span.start + real)
            if query < span.num_tokens:
                kept.append(len(rows) - 1)
        own = list(span.block_ids[:num_blocks])
        # Blocks behind a shorter sequence's last are never seen; any valid one will do.
        blocks += own + own[-1:] * (num_blocks - len(own))
    all_kept = len(kept) == len(rows)
    blocks_index = _index(blocks, device)
    last_position = max(span.end for span in spans) - 1
    in_place = len(spans) == 1 and isinstance(blocks_index, slice)
    return QueryGroup(
        rows=_index(rows, device),
        kept=None if all_kept else torch.tensor(kept, device=device),
        blocks=blocks_index,
        positions=torch.tensor(positions, device=device).view(len(spans), longest),
        last_position=last_position,
        # What is read in place need not end at a block's border.
        num_slots=last_position + 1 if in_place else num_blocks * cache.block_size,
    )


def _index(values: list[int], device: torch.device) -> slice | Tensor:
    """A slice, which reads in place, where the values are consecutive."""
    if values[-1] - values[0] == len(values) - 1 and all(
        later - earlier == 1 for earlier, later in pairwise(values)
    ):
        return slice(values[0], values[-1] + 1)
    return torch.tensor(values, device=device)


def _materialise(index: slice | Tensor, device: torch.device) -> Tensor:
    if isinstance(index, slice):
        return torch.arange(index.start, index.stop, device=device)
    return index


def _write(pool: Tensor, slots: slice | Tensor, new: Tensor) -> None:
    """pool: [K, num_slots, D], new: [K, N, D]."""
    if pool.dtype == torch.float16:
        # Real models overflow float16. An infinity left in a freed block would reach its next
        # owner through the mask (0 * inf is NaN), so one request would break another.
        new = new.nan_to_num()
    if isinstance(slots, slice):
        pool[:, slots] = new
    else:
        pool.index_copy_(1, slots, new.to(pool.dtype))


def _attend(
    group: QueryGroup,
    query: Tensor,  # [H, N, D]
    keys: Tensor,  # [K, num_slots, D]
    values: Tensor,
    block_size: int,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Tensor:  # [B * T, H, D]
    kv_heads = keys.shape[0]
    group_size = query.shape[0] // kv_heads
    num_seqs, num_queries = group.positions.shape
    # Grouped heads: the G query heads of a KV head become further queries of it, so that keys and
    # values are used as they lie, neither repeated nor transposed.
    q = query[:, group.rows].reshape(kv_heads, group_size, num_seqs, num_queries, -1)
    q = q.transpose(1, 2).reshape(kv_heads * num_seqs, group_size * num_queries, -1)
    k = _read(keys, group, block_size)  # [K * B, S, D]
    v = _read(values, group, block_size)
    bias = group.bias(window, kv_heads, group_size)
    k_t = k.transpose(1, 2)
    if softcap is not None:
        scores = torch.bmm(q, k_t).mul_(scale / softcap).tanh_().mul_(softcap)
        scores = scores if bias is None else scores + bias
    elif bias is None:
        scores = torch.bmm(q * scale, k_t)
    else:
        scores = torch.baddbmm(bias.to(q.dtype), q, k_t, alpha=scale)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype)
    out = torch.bmm(weights, v).view(kv_heads, num_seqs, group_size, num_queries, -1)
    return out.permute(1, 3, 0, 2, 4).reshape(
        num_seqs * num_queries, kv_heads * group_size, v.shape[-1]
    )


def _read(pool: Tensor, group: QueryGroup, block_size: int) -> Tensor:
    """The group's slots of one layer: [K * B, S, D]; a view for a lone sequence in one run."""
    kv_heads, _, dim = pool.shape
    num_seqs = group.positions.shape[0]
    if isinstance(group.blocks, slice) and num_seqs == 1:
        first = group.blocks.start * block_size
        return pool[:, first : first + group.num_slots]
    by_block = pool.view(kv_heads, -1, block_size * dim)
    if isinstance(group.blocks, slice):
        taken = by_block[:, group.blocks]
    else:
        taken = by_block.index_select(1, group.blocks)
    return taken.reshape(kv_heads * num_seqs, group.num_slots, dim)
