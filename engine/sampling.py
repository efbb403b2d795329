"""The one rule that turns logits into a token, for the target and for the drafter alike.

token = argmax_i(logit_i / temperature + g(seed, position, i)) over the tokens that min_p, top-k and
top-p leave; argmax of the logits at temperature 0. A pure function of the row: no generator, no
history. With scaled_i = logit_i / temperature and p its softmax:

- min_p leaves i with p_i >= min_p * max p, that is scaled_i >= max scaled + log min_p;
- top-k leaves i with scaled_i >= the k-th largest (ties stay);
- top-p leaves i if the tokens likelier than it have together less than top_p of what is left.

None of these needs a sorted vocabulary. Most tokens cannot win whatever their noise, and only the
*candidates* that can are looked at: a few hundred of fifty thousand.
"""

import math
from collections.abc import Sequence as ReadOnly
from itertools import accumulate

import torch
from torch import Tensor

from engine.noise import LARGEST_GUMBEL, SMALLEST_GUMBEL, gumbel_at
from engine.place import Place
from engine.request import SamplingParams

NOISE_SPAN = LARGEST_GUMBEL - SMALLEST_GUMBEL
"""A token whose scaled logit is further below the largest one cannot win."""


def choose_rows(logits: Tensor, places: ReadOnly[Place]) -> list[int]:
    """One token for each row of [rows, vocab], from logits that `adjusted` has seen."""
    sampled = [row for row, place in enumerate(places) if not place.sampling.is_greedy]
    if not sampled:
        return _likeliest(logits)
    if len(sampled) == len(places):
        return _sample(logits, places)
    tokens = _likeliest(logits)
    drawn = _sample(logits[sampled], [places[row] for row in sampled])
    for row, token in zip(sampled, drawn, strict=True):
        tokens[row] = token
    return tokens


def _likeliest(logits: Tensor) -> list[int]:
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    return tokens


def _sample(logits: Tensor, places: ReadOnly[Place]) -> list[int]:
    params = [place.sampling for place in places]
    temperatures = torch.tensor([[p.temperature] for p in params], device=logits.device)
    scaled = logits.float() / temperatures
    floors, log_totals = _floors(scaled, params)
    rows, token_ids = (scaled >= floors).nonzero(as_tuple=True)
    values = scaled[rows, token_ids]
    raced = values + gumbel_at([(p.part.seed, p.position) for p in places], rows, token_ids)
    counts: list[int] = torch.bincount(rows, minlength=len(places)).tolist()
    winners = [
        _winner(row_values, row_raced, sampling.top_p, log_total)
        for row_values, row_raced, sampling, log_total in zip(
            values.split(counts), raced.split(counts), params, log_totals, strict=True
        )
    ]
    starts = accumulate(counts[:-1], initial=0)
    index = [start + winner for start, winner in zip(starts, winners, strict=True)]
    tokens: list[int] = token_ids[index].tolist()
    return tokens


def _floors(scaled: Tensor, params: ReadOnly[SamplingParams]) -> tuple[Tensor, list[float | None]]:
    """For each row the least scaled logit of a candidate, [rows, 1], and the log of the mass that
    top-p shares out: None where it is the candidates' own."""
    largest: list[float] = scaled.amax(dim=1).tolist()
    is_open = [p.top_p < 1.0 and p.top_k == 0 and p.min_p == 0.0 for p in params]
    totals: list[float] = scaled.logsumexp(dim=1).tolist() if any(is_open) else largest
    vocab = scaled.shape[1]
    floors = []
    for row, sampling in enumerate(params):
        if is_open[row]:
            # Even all of the vocabulary, each less likely than this, would be the 1 - top_p that
            # is left out.
            floors.append(totals[row] + math.log((1.0 - sampling.top_p) / vocab))
            continue
        floor = -math.inf
        if sampling.min_p > 0.0:
            floor = largest[row] + math.log(sampling.min_p)
        if 0 < sampling.top_k < vocab:
            floor = max(floor, float(scaled[row].topk(sampling.top_k).values[-1]))
        # What min_p and top-k leave is kept whole, because top-p needs its mass.
        floors.append(floor if floor > -math.inf else largest[row] - NOISE_SPAN)
    log_totals = [total if alone else None for total, alone in zip(totals, is_open, strict=True)]
    return torch.tensor(floors, device=scaled.device).unsqueeze(1), log_totals


def _winner(values: Tensor, raced: Tensor, top_p: float, log_total: float | None) -> int:
    """Index of the candidate that wins among those in the nucleus. Changes `raced`.

    The winner of all candidates is looked at first: if the tokens likelier than it have less than
    top_p together it is in the nucleus, else neither it nor any less likely one is.
    """
    winner = int(raced.argmax())
    if top_p == 1.0:
        return winner
    log_mass = float(values.logsumexp(0)) if log_total is None else log_total
    while True:
        likelier = values > values[winner]
        if float((values[likelier] - log_mass).exp().sum()) < top_p:
            return winner
        raced[~likelier] = -torch.inf
        winner = int(raced.argmax())
