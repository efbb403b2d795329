"""Gumbel noise from a stateless hash of (seed, position, token id).

The noise belongs to the place in the text, not to a generator that is drawn from: whoever asks for
it, in whatever order and batch, gets the same. This is what makes sampling independent of drafts,
neighbours, preemption and replicas (drafter-invariant speculative decoding: Daliri, Musco, Suresh
2024, arXiv 2408.07978), by the Gumbel-max trick: argmax_i(log p_i + g_i) is a sample of p.
"""

from collections.abc import Sequence as ReadOnly

import torch
from torch import Tensor

_MASK_64 = 2**64 - 1
_LARGEST_UNIFORM = 1.0 - 2.0**-24
LARGEST_GUMBEL = 22.2
"""No noise is larger: -log(-log(1 - 2^-32)) is 22.18."""
SMALLEST_GUMBEL = -2.9
"""No noise is smaller: -log(-log(2^-24)) is -2.81."""


def gumbel(seed: int, position: int, token_ids: Tensor) -> Tensor:
    """Standard Gumbel noise, float32, of `token_ids` (any integers and shape) at one position."""
    return gumbel_at([(seed, position)], torch.zeros_like(token_ids, dtype=torch.long), token_ids)


def gumbel_at(places: ReadOnly[tuple[int, int]], rows: Tensor, token_ids: Tensor) -> Tensor:
    """The same at many positions: entry i is for `token_ids[i]` at (seed, position) `rows[i]`."""
    keys = [_splitmix64(_splitmix64(s & _MASK_64) ^ (p & _MASK_64)) for s, p in places]
    factors = torch.tensor([_signed32((key >> 32) | 1) for key in keys], dtype=torch.int32)
    offsets = torch.tensor([_signed32(key & 0xFFFFFFFF) for key in keys], dtype=torch.int32)
    hashed = token_ids.int() * factors.to(rows.device)[rows]
    hashed ^= offsets.to(rows.device)[rows]
    _mix32(hashed)
    # 31 bits as a non-negative integer: float32 keeps its relative precision towards 0, where the
    # winner of the race among many tokens lies. The cap keeps every token's noise finite.
    uniform = (hashed & 0x7FFFFFFF).float().add_(0.5).mul_(2.0**-31).clamp_(max=_LARGEST_UNIFORM)
    exponential = uniform.neg_().log1p_().neg_()
    return exponential.log_().neg_()


def _splitmix64(value: int) -> int:
    """Steele, Lea, Flood 2014: a bijection of 64 bits in which every output bit depends on all."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return value ^ (value >> 31)


def _mix32(h: Tensor) -> None:
    """MurmurHash3's 32-bit finaliser, in place; masks make torch's arithmetic shifts logical."""
    h ^= (h >> 16) & 0xFFFF
    h *= _signed32(0x85EBCA6B)
    h ^= (h >> 13) & 0x7FFFF
    h *= _signed32(0xC2B2AE35)
    h ^= (h >> 16) & 0xFFFF


def _signed32(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value
