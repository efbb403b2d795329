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


def keys(places: ReadOnly[tuple[int, int]]) -> Tensor:
    """What the noise at each (seed, position) is made from: int32 [places, 2]."""
    mixed = [_splitmix64(_splitmix64(seed & _MASK_64) ^ (at & _MASK_64)) for seed, at in places]
    halves = [(_signed32((key >> 32) | 1), _signed32(key & 0xFFFFFFFF)) for key in mixed]
    return torch.tensor(halves, dtype=torch.int32).view(-1, 2)


def uniform(keys: Tensor, token_ids: Tensor) -> Tensor:
    """Uniform noise in (0, 1), float32, of tokens (int32) at places: [...] from keys [..., 2]."""
    hashed = token_ids * keys[..., 0]
    hashed ^= keys[..., 1]
    _mix32(hashed)
    # 31 bits as a non-negative integer: float32 keeps its relative precision towards 0, where the
    # winner of the race among many tokens lies. The cap keeps every token's noise finite.
    hashed &= 0x7FFFFFFF
    return hashed.float().add_(0.5).mul_(2.0**-31).clamp_(max=_LARGEST_UNIFORM)


def gumbel(uniforms: Tensor) -> Tensor:
    """Uniform noise as standard Gumbel noise; at most -log(uniform)."""
    return torch.log1p(-uniforms).neg_().log_().neg_()


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
