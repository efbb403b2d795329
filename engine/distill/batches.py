"""Samples as padded batches of like length, in an order that a seed decides."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.distill.samples import Sample

_SORTED_TOGETHER = 32
"""Batches whose samples are sorted by length among themselves: little padding, much chance."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Of n texts, padded to `length` tokens behind their ends; `labelled` places in all."""

    token_ids: Tensor
    """[n, length]"""
    num_tokens: int
    """Without the padding."""
    first: int
    """No place before this one is labelled."""
    places: Tensor
    """[labelled]: of the labelled places, as indices into [n, length - first] flattened. A place
    is that of the token before the one it tells of."""
    label_ids: Tensor
    """[labelled, NUM_TOP]: the target's likeliest tokens, as indices into the vocabulary kept."""
    label_probs: Tensor
    """[labelled, NUM_TOP]: what the target holds of them; of tokens not kept 0. A row adds up to 1,
    or to 0 where none is kept."""
    is_known: Tensor
    """[labelled]: whether the draft can say the target's likeliest token at all."""


def batches(
    samples: Sequence[Sample],
    index_of: Tensor,
    *,
    max_tokens: int,
    max_len: int,
    seed: int | None,
    hard: bool = False,
) -> Iterator[Batch]:
    """All samples once, `max_tokens` padded tokens at a time; with no seed, in their order.

    `index_of` [vocab] gives the place of a token in the vocabulary kept, and -1 for the others.
    `hard`: all of a label's probability is the likeliest token's.
    """
    order = list(range(len(samples)))
    if seed is not None:
        random.Random(seed).shuffle(order)
    for group in _groups(samples, order, max_tokens, max_len, seed):
        yield _batch([samples[i] for i in group], index_of, max_len, hard)


def _groups(
    samples: Sequence[Sample], order: list[int], max_tokens: int, max_len: int, seed: int | None
) -> Iterator[list[int]]:
    pool_tokens = _SORTED_TOGETHER * max_tokens
    at = 0
    while at < len(order):
        pool, tokens = [], 0
        while at < len(order) and tokens < pool_tokens:
            pool.append(order[at])
            tokens += min(max_len, len(samples[order[at]].tokens))
            at += 1
        pool.sort(key=lambda i: len(samples[i].tokens))
        groups: list[list[int]] = [[]]
        for i in pool:
            longest = min(max_len, len(samples[i].tokens))
            if groups[-1] and longest * (len(groups[-1]) + 1) > max_tokens:
                groups.append([])
            groups[-1].append(i)
        if seed is not None:
            random.Random(seed + at).shuffle(groups)
        yield from groups


def _batch(samples: list[Sample], index_of: Tensor, max_len: int, hard: bool) -> Batch:
    length = min(max_len, max(len(sample.tokens) for sample in samples))
    first = min(min(sample.start for sample in samples), length) - 1
    token_ids = np.zeros((len(samples), length), np.int64)
    places, ids, logprobs = [], [], []
    for row, sample in enumerate(samples):
        end = min(length, len(sample.tokens))
        token_ids[row, :end] = sample.tokens[:end]
        count = max(0, end - sample.start)
        offset = row * (length - first) + sample.start - 1 - first
        places.append(np.arange(offset, offset + count))
        ids.append(sample.top_ids[:count])
        logprobs.append(sample.top_logprobs[:count])
    label_ids = index_of[torch.from_numpy(np.concatenate(ids).astype(np.int64))]
    kept = label_ids >= 0
    probs = torch.from_numpy(np.concatenate(logprobs)).float().exp()
    if hard:
        probs = torch.zeros_like(probs)
        probs[:, 0] = 1.0
    probs = probs * kept
    return Batch(
        torch.from_numpy(token_ids),
        sum(min(length, len(sample.tokens)) for sample in samples),
        first,
        torch.from_numpy(np.concatenate(places)),
        label_ids.clamp(min=0),
        probs / probs.sum(dim=-1, keepdim=True).clamp(min=1e-9),
        kept[:, 0],
    )


def most_said(samples: Iterable[Sample], size: int) -> tuple[list[int], float]:
    """The tokens that were likeliest at most places, at most `size` of them, in ascending order,
    and the share of the places that they cover."""
    counts: Counter[int] = Counter()
    for sample in samples:
        token_ids, times = np.unique(sample.top_ids[:, 0], return_counts=True)
        counts.update(dict(zip(token_ids.tolist(), times.tolist(), strict=True)))
    kept = counts.most_common(size)
    share = sum(times for _, times in kept) / max(1, counts.total())
    return sorted(token for token, _ in kept), share
