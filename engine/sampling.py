"""The one rule that turns logits into a token, for the target and for the drafter alike.

token = argmax_i(logit_i / temperature + g(seed, position, i)) over the tokens that min_p, top-k and
top-p leave; argmax of the logits at temperature 0. A pure function of the row: no generator, no
history. With scaled_i = logit_i / temperature and p its softmax:

- min_p leaves i with p_i >= min_p * max p, that is scaled_i >= max scaled + log min_p;
- top-k leaves i with scaled_i >= the k-th largest (ties stay);
- top-p leaves i if the tokens likelier than it have together less than top_p of what is left.

None of these needs a sorted vocabulary. *Candidates* are the tokens that may be left by all three
(`candidates.py`); *contenders* those of them that can beat the likeliest token, which is always
left. A token contends only if its Gumbel noise, at most -log(uniform), can lift it above the
likeliest one's: a test without logarithms that few tokens pass, the likeliest among them.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.candidates import Candidates, Rows, Sieve, rows_of
from engine.noise import gumbel, hashes, keys, largest_hash, uniform
from engine.place import Place
from engine.request import SamplingParams

Choose = Callable[[ReadOnly[Tensor], ReadOnly[Place]], list[int]]
"""What `choose` is; `kernels/choice.py` has it as an operator."""

_MARGIN = 1.0 + 1e-5
"""So that rounding takes no candidate and no contender out."""
_TINY = 1e-12
"""In the place of 0 under a logarithm: where top_p is as good as 1."""
_OPEN_DEPTH = 10.0
"""Without filters, tokens this far below the likeliest are known by their hash: few are small
enough."""


def choose(rows: ReadOnly[Tensor], places: ReadOnly[Place]) -> list[int]:
    """One token for each row of logits, [vocab], that `adjusted` has seen.

    Where the largest logit is no finite number, it is the choice.
    """
    if not rows:
        return []
    logits = rows_of(rows)
    likeliest = logits.likeliest()
    tokens = [token for token, _ in likeliest]
    sampled = [
        row
        for row, place in enumerate(places)
        if not place.sampling.is_greedy and math.isfinite(likeliest[row][1])
    ]
    noise_keys = keys([(places[row].part.seed, places[row].position) for row in sampled])
    favourites = np.array([tokens[row] for row in sampled], np.uint32)
    own_noise = gumbel(uniform(hashes(noise_keys, favourites))).tolist()
    races = {
        row: _Race(places[row].sampling, len(rows[row]), likeliest[row][1], key, noise)
        for row, key, noise in zip(sampled, noise_keys, own_noise, strict=True)
    }
    found = logits.sift({row: race.sieve for row, race in races.items()})
    with np.errstate(over="ignore", under="ignore"):  # so far below the likeliest: -inf, and 0
        for row, race in races.items():
            tokens[row] = race.winner(found[row], logits, row)
    return tokens


class _Race:
    """A sampled row's choice."""

    def __init__(
        self,
        sampling: SamplingParams,
        vocab: int,
        largest: float,
        key: NDArray[np.uint32],
        noise: float,
    ) -> None:
        """`largest` is the likeliest token's logit, `noise` its noise."""
        self._sampling = sampling
        self._vocab = vocab
        self._largest = largest
        self._key = key
        self._contending = _MARGIN * math.exp(-noise)
        """A token contends if its uniform noise is at most this times exp(scaled), the likeliest
        token's being at 0."""

    @property
    def sieve(self) -> Sieve:
        sampling = self._sampling
        if sampling.min_p > 0.0:
            depth = -math.log(sampling.min_p)
        elif _is_cut(sampling, self._vocab):
            depth = math.inf
        elif sampling.top_p == 1.0:
            limit = largest_hash(self._contending * math.exp(-_OPEN_DEPTH))
            return Sieve(self._floor(_OPEN_DEPTH), key=self._key, largest_hash=limit)
        else:
            # Tokens less likely than this, were they all of the vocabulary, would not even be the
            # 1 - top_p that is left out, of a mass of at least 1.
            depth = math.log(self._vocab / _outside(sampling.top_p))
        return Sieve(self._floor(depth), sampling.top_k)

    def _floor(self, depth: float) -> float:
        slack = (_MARGIN - 1.0) * (1.0 + abs(self._largest))
        return self._largest - self._sampling.temperature * depth * _MARGIN - slack

    def winner(self, found: Candidates, rows: Rows, row: int) -> int:
        # Less the largest, before the division: beside large numbers the noise would be rounded.
        scaled = (found.logits - np.float32(self._largest)) / np.float32(self._sampling.temperature)
        token_ids, scaled = self._filter(found, scaled)
        weights = np.exp(scaled)
        uniforms = uniform(hashes(self._key, token_ids))
        contenders = (uniforms <= weights * np.float32(self._contending)).nonzero()[0]
        raced = scaled[contenders] + gumbel(uniforms[contenders])
        best = contenders[raced.argmax()]
        if self._sampling.top_p < 1.0:
            nucleus = _Nucleus(self._sampling, scaled, weights, self._vocab)
            # The likeliest token is in it and among the contenders.
            while not nucleus.holds(best, lambda: self._mass(rows, row)):
                raced[scaled[contenders] <= scaled[best]] = -np.inf
                best = contenders[raced.argmax()]
        return int(token_ids[best])

    def _mass(self, rows: Rows, row: int) -> float:
        return rows.mass(row, self._largest, self._sampling.temperature)

    def _filter(
        self, found: Candidates, scaled: NDArray[np.float32]
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Token ids and scaled logits that min_p and top-k leave."""
        top_k, min_p = self._sampling.top_k, self._sampling.min_p
        floor = math.log(min_p) if min_p > 0.0 else -math.inf
        if 0 < top_k < len(scaled):
            floor = max(floor, float(np.partition(scaled, -top_k)[-top_k]))
        if floor == -math.inf:
            return found.token_ids, scaled
        left = scaled >= np.float32(floor)
        return found.token_ids[left], scaled[left]


class _Nucleus:
    """The likeliest candidates that together reach top_p of the mass."""

    def __init__(
        self,
        sampling: SamplingParams,
        scaled: NDArray[np.float32],
        weights: NDArray[np.float32],
        vocab: int,
    ) -> None:
        self._top_p = sampling.top_p
        self._scaled = scaled
        self._weights = weights
        self._least = float(weights.sum(dtype=np.float64))
        """The mass is at least this, and no larger than this and `_rest`."""
        self._rest = 0.0
        if not _is_cut(sampling, vocab):
            self._rest = _outside(sampling.top_p) * (vocab - len(weights)) / vocab

    def holds(self, index: np.intp, mass: Callable[[], float]) -> bool:
        """Whether the candidate is in it; `mass` is the exact one, which is rarely needed."""
        likelier = float(self._weights[self._scaled > self._scaled[index]].sum(dtype=np.float64))
        if likelier < self._top_p * self._least:
            return True
        if likelier >= self._top_p * (self._least + self._rest):
            return False
        return likelier < self._top_p * mass()


def _is_cut(sampling: SamplingParams, vocab: int) -> bool:
    """Whether min_p or top-k takes out tokens."""
    return sampling.min_p > 0.0 or 0 < sampling.top_k < vocab


def _outside(top_p: float) -> float:
    """What top-p leaves out, of 1."""
    return max(1.0 - top_p, _TINY)
