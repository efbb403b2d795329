"""The one rule that turns logits into a token, for the target and for the drafter alike.

token = argmax_i(logit_i / temperature + g(seed, position, i)) over the tokens that top-k and top-p
leave; argmax of the logits at temperature 0. A pure function of the row: no generator, no history.
"""

from collections.abc import Sequence as ReadOnly

import torch
from torch import Tensor

from engine.noise import gumbel
from engine.request import SamplingParams

NUCLEUS_GUESS = 512
"""Largest tokens looked at first for top-p; only a flatter distribution is sorted whole."""


def choose(logits: Tensor, sampling: SamplingParams, seed: int, position: int) -> int:
    """The token at `position` (its index in the sequence), from logits [vocab]."""
    if sampling.is_greedy:
        return int(logits.argmax())
    scaled = logits.float() / sampling.temperature
    if sampling.top_k == 0 and sampling.top_p == 1.0:
        every = torch.arange(len(scaled), dtype=torch.int32, device=scaled.device)
        return int((scaled + gumbel(seed, position, every)).argmax())
    values, token_ids = _candidates(scaled, sampling)
    return int(token_ids[(values + gumbel(seed, position, token_ids.int())).argmax()])


def choose_greedy(logits: Tensor) -> list[int]:
    """The likeliest token of each row of [rows, vocab]."""
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    return tokens


def _candidates(scaled: Tensor, sampling: SamplingParams) -> tuple[Tensor, Tensor]:
    """Logits and ids of the tokens left by top-k, then top-p: [candidates] each, largest first."""
    vocab = len(scaled)
    if sampling.top_k:
        values, token_ids = scaled.topk(min(sampling.top_k, vocab))
        return _nucleus(values, token_ids, sampling.top_p, values.logsumexp(0))
    total = scaled.logsumexp(0)
    values, token_ids = scaled.topk(min(NUCLEUS_GUESS, vocab))
    if float((values - total).exp().sum()) < sampling.top_p:
        values, token_ids = scaled.sort(descending=True)
    return _nucleus(values, token_ids, sampling.top_p, total)


def _nucleus(
    values: Tensor, token_ids: Tensor, top_p: float, log_total: Tensor
) -> tuple[Tensor, Tensor]:
    """The shortest head of the sorted candidates whose probability reaches top_p."""
    if top_p == 1.0:
        return values, token_ids
    reached = (values - log_total).exp().cumsum(0)
    count = min(int((reached < top_p).sum()) + 1, len(values))
    return values[:count], token_ids[:count]


def choose_rows(logits: Tensor, rows: ReadOnly[tuple[SamplingParams, int, int]]) -> list[int]:
    """One token for each row of [rows, vocab]; `rows` holds (sampling, seed, position)."""
    if all(sampling.is_greedy for sampling, _, _ in rows):
        return choose_greedy(logits)
    return [
        choose(row, sampling, seed, position)
        for row, (sampling, seed, position) in zip(logits, rows, strict=True)
    ]
