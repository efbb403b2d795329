"""The one rule that turns logits into a token, for the target and for the drafter alike.

token = argmax_i(logit_i / temperature + g(seed, position, i)) over the tokens that min_p, top-k and
top-p leave; argmax of the logits at temperature 0. A pure function of the row: no generator, no
history. With scaled_i = logit_i / temperature and p its softmax:

- min_p leaves i with p_i >= min_p * max p, that is scaled_i >= max scaled + log min_p;
- top-k leaves i with scaled_i >= the k-th largest (ties stay);
- top-p leaves i if the tokens likelier than it have together less than top_p of what is left.

None of these needs a sorted vocabulary. *Candidates* are the tokens that may be left by all three;
*contenders* those of them that can beat the likeliest token, which is always left. The rest of the
vocabulary is looked at only in passes that a CPU or GPU does at the speed of its caches.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly

import torch
from torch import Tensor

from engine.noise import gumbel, keys, uniform
from engine.place import Place
from engine.request import SamplingParams

MARGIN = 1.0 + 1e-5
"""So that rounding takes no contender out."""
TINY = 1e-12
"""In the place of 0 under a logarithm: top_k beyond the vocabulary filters nothing."""


def choose_rows(logits: Tensor, places: ReadOnly[Place]) -> list[int]:
    """One token for each row of [rows, vocab], from logits that `adjusted` has seen."""
    kinds: dict[Callable[..., list[int]], list[int]] = {}
    for row, place in enumerate(places):
        kinds.setdefault(_rule(place.sampling), []).append(row)
    tokens = [0] * len(places)
    for rule, rows in kinds.items():
        part = logits if len(rows) == len(logits) else logits[rows]
        for row, token in zip(rows, rule(part, [places[row] for row in rows]), strict=True):
            tokens[row] = token
    return tokens


def _rule(sampling: SamplingParams) -> Callable[..., list[int]]:
    if sampling.is_greedy:
        return _choose_likeliest
    is_open = sampling.top_p == 1.0 and sampling.top_k == 0 and sampling.min_p == 0.0
    return _sample_all if is_open else _sample_some


def _choose_likeliest(logits: Tensor, _places: ReadOnly[Place]) -> list[int]:
    tokens: list[int] = _likeliest(logits, logits.amax(dim=1, keepdim=True)).tolist()
    return tokens


def _sample_all(logits: Tensor, places: ReadOnly[Place]) -> list[int]:
    """From the whole distribution: all tokens are candidates."""
    race = _Race(logits, places)
    every_token = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
    tokens = []
    for row in range(len(places)):  # one by one, so that a CPU's cache holds what it passes over
        uniforms = uniform(race.keys[row], every_token)
        contends = uniforms <= (race.scaled[row] - race.to_beat[row]).exp_().mul_(MARGIN)
        contenders = contends.nonzero().squeeze(1)
        raced = race.scaled[row, contenders] + gumbel(uniforms[contenders])
        tokens.append(int(contenders[raced.argmax()] if len(raced) else race.likeliest[row]))
    return tokens


def _sample_some(logits: Tensor, places: ReadOnly[Place]) -> list[int]:
    """From what min_p, top-k and top-p leave."""
    race = _Race(logits, places)
    params = [place.sampling for place in places]
    floors, log_totals = _floors(race.scaled, params)
    rows, token_ids = _at_least(race.scaled, floors)
    values = race.scaled[rows, token_ids]
    uniforms = uniform(race.keys[rows], token_ids.int())
    contends = uniforms <= (values - race.to_beat[rows]).exp_().mul_(MARGIN)
    raced = torch.full_like(values, -torch.inf)
    raced[contends] = values[contends] + gumbel(uniforms[contends])
    ends = torch.bincount(rows, minlength=len(places)).cumsum(0).tolist()
    num_contenders = torch.bincount(rows[contends], minlength=len(places)).tolist()
    tokens: list[int] = race.likeliest.tolist()
    for row, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if num_contenders[row]:
            top_p = params[row].top_p
            winner = _winner(values[start:end], raced[start:end], top_p, log_totals[row])
            tokens[row] = int(token_ids[start + winner])
    return tokens


class _Race:
    """What the sampled rows' tokens race with.

    A token contends only if its Gumbel noise, at most -log(uniform), can lift it above the
    likeliest token, which every filter leaves: a test without logarithms that few tokens pass. The
    likeliest one does pass it, but where the largest logit is no finite number: then none does, and
    the likeliest is the choice.
    """

    def __init__(self, logits: Tensor, places: ReadOnly[Place]) -> None:
        temperatures = torch.tensor([[place.sampling.temperature] for place in places])
        at = [(place.part.seed, place.position) for place in places]
        self.keys = keys(at).to(logits.device)
        """[rows, 2]"""
        logits = logits.float()
        largest = logits.amax(dim=1, keepdim=True)
        self.likeliest = _likeliest(logits, largest)
        """[rows]"""
        # Less the largest, before the division: beside large numbers the noise would be rounded.
        self.scaled = (logits - largest).div_(temperatures.to(logits.device))
        """[rows, vocab], the likeliest token's at 0"""
        self.to_beat = gumbel(uniform(self.keys, self.likeliest.int()))
        """[rows]"""


def _floors(scaled: Tensor, params: ReadOnly[SamplingParams]) -> tuple[Tensor, list[float | None]]:
    """For each row the least scaled logit of a candidate, [rows, 1]; and the log of the mass that
    top-p shares out, None where that is the candidates' own."""
    vocab = scaled.shape[1]
    floors: list[float] = []
    log_totals: list[float | None] = []
    for row, sampling in enumerate(params):
        if sampling.min_p == 0.0 and not 0 < sampling.top_k < vocab:
            total = float(scaled[row].logsumexp(0))
            # Tokens less likely than this, were they all of the vocabulary, would not even be the
            # 1 - top_p that is left out.
            floors.append(total + math.log(max(1.0 - sampling.top_p, TINY) / vocab))
            log_totals.append(total)
            continue
        floor = -math.inf
        if sampling.min_p > 0.0:
            floor = math.log(sampling.min_p)
        if 0 < sampling.top_k < vocab:
            floor = max(floor, float(scaled[row].topk(sampling.top_k).values[-1]))
        floors.append(floor)
        log_totals.append(None)
    return torch.tensor(floors, device=scaled.device).unsqueeze(1), log_totals


def _winner(values: Tensor, raced: Tensor, top_p: float, log_total: float | None) -> int:
    """Index of the candidate that wins among those in the nucleus. Changes `raced`.

    The winner of all contenders is looked at first: if it is not in the nucleus, neither is any
    that is as unlikely or less likely.
    """
    winner = int(raced.argmax())
    if top_p == 1.0:
        return winner
    if log_total is None:
        log_total = float(values.logsumexp(0))
    while True:
        likelier = values > values[winner]
        if float((values[likelier] - log_total).exp_().sum()) < top_p:
            return winner
        raced[~likelier] = -torch.inf
        winner = int(raced.argmax())


def _likeliest(logits: Tensor, largest: Tensor) -> Tensor:
    """The first token of each row that has the row's largest logit: [rows]."""
    rows, token_ids = _at_least(logits, largest)
    if rows.tolist() != list(range(len(logits))):  # ties, or rows of NaN
        return logits.argmax(dim=1)
    return token_ids


def _at_least(logits: Tensor, floors: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns, in order, where [rows, vocab] reaches [rows, 1]."""
    if logits.device.type != "cpu" or logits.dtype == torch.bfloat16:
        rows, token_ids = (logits >= floors).nonzero(as_tuple=True)
        return rows, token_ids
    # numpy compares and searches ten times faster than torch does on a CPU.
    flat = torch.from_numpy((logits.numpy() >= floors.numpy()).ravel().nonzero()[0])
    return flat // logits.shape[1], flat % logits.shape[1]
