"""Gumbel noise from a stateless hash of (seed, position, token id).

The noise belongs to the place in the text, not to a generator that is drawn from: whoever asks for
it, in whatever order and batch, gets the same. This is what makes sampling independent of drafts,
neighbours, preemption and replicas (drafter-invariant speculative decoding: Daliri, Musco, Suresh
2024, arXiv 2408.07978), by the Gumbel-max trick: argmax_i(log p_i + g_i) is a sample of p.
"""

from collections.abc import Sequence as ReadOnly

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MASK_64 = 2**64 - 1
_LARGEST_UNIFORM = np.float32(1.0 - 2.0**-24)


def keys(places: ReadOnly[tuple[int, int]]) -> NDArray[np.uint32]:
    """What the noise at each (seed, position) is made from: [places, 2]."""
    mixed = [_splitmix64(_splitmix64(seed & _MASK_64) ^ (at & _MASK_64)) for seed, at in places]
    halves = [((key >> 32) | 1, key & 0xFFFFFFFF) for key in mixed]
    return np.array(halves, dtype=np.uint32).reshape(-1, 2)


def hashes(keys: NDArray[np.uint32], token_ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """31 random bits for tokens [...] at places, from keys [..., 2]."""
    h = token_ids * keys[..., 0]
    h ^= keys[..., 1]
    # MurmurHash3's 32-bit finaliser.
    h ^= h >> 16
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> 13
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> 16
    h &= np.uint32(0x7FFFFFFF)
    return h


def hashes_on_device(keys: NDArray[np.uint32], vocab: int, device: torch.device) -> Tensor:
    """The same for every token at each place, computed where the logits are: int32 [places, vocab].

    torch has no unsigned shifts, so masks take out the copies of the sign.
    """
    signed = torch.from_numpy(keys.view(np.int32)).to(device)
    h = torch.arange(vocab, dtype=torch.int32, device=device) * signed[:, :1]
    h ^= signed[:, 1:]
    h ^= (h >> 16) & 0xFFFF
    h *= _signed32(0x85EBCA6B)
    h ^= (h >> 13) & 0x7FFFF
    h *= _signed32(0xC2B2AE35)
    h ^= (h >> 16) & 0xFFFF
    h &= 0x7FFFFFFF
    return h


def uniform(hashes: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Uniform noise in (0, 1) of `hashes`, and in their order."""
    # float32 keeps its relative precision towards 0, where the winner of the race among many tokens
    # lies. The cap keeps every token's noise finite.
    noise = hashes.astype(np.float32)
    noise += np.float32(0.5)
    noise *= np.float32(2.0**-31)
    return np.minimum(noise, _LARGEST_UNIFORM, out=noise)


def largest_hash(uniform: float) -> int:
    """No hash above it gives uniform noise of `uniform` or less."""
    return min(int(uniform * 2.0**31), 0x7FFFFFFF)


def gumbel(uniforms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Uniform noise as standard Gumbel noise; at most -log(uniform)."""
    noise: NDArray[np.float32] = -np.log(-np.log1p(-uniforms))
    return noise


def _splitmix64(value: int) -> int:
    """Steele, Lea, Flood 2014: a bijection of 64 bits in which every output bit depends on all."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return value ^ (value >> 31)


def _signed32(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value
