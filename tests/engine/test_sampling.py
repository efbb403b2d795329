"""The sampling rule: the noise is a fair Gumbel, and the tokens follow the distribution."""

import math

import pytest
import torch

from engine.noise import gumbel
from engine.request import SamplingParams
from engine.sampling import NUCLEUS_GUESS, choose

EULER_GAMMA = 0.5772156649


def test_noise_depends_on_seed_position_and_token_alone() -> None:
    ids = torch.arange(1000, dtype=torch.int32)
    noise = gumbel(42, 7, ids)
    assert torch.equal(noise, gumbel(42, 7, ids))
    assert torch.equal(noise[500:], gumbel(42, 7, ids[500:]))
    assert not torch.equal(noise, gumbel(43, 7, ids))
    assert not torch.equal(noise, gumbel(42, 8, ids))
    assert torch.equal(gumbel(-1, 0, ids), gumbel(2**64 - 1, 0, ids))


@pytest.mark.parametrize("axis", ["tokens", "positions", "seeds"])
def test_noise_is_gumbel_along_every_axis(axis: str) -> None:
    count = 20_000
    one = torch.tensor([5], dtype=torch.int32)
    if axis == "tokens":
        noise = gumbel(1, 2, torch.arange(count, dtype=torch.int32))
    elif axis == "positions":
        noise = torch.cat([gumbel(1, position, one) for position in range(count)])
    else:
        noise = torch.cat([gumbel(seed, 2, one) for seed in range(count)])
    assert torch.isfinite(noise).all()
    # Kolmogorov-Smirnov against exp(-exp(-x)); 1.95 / sqrt(n) is the 0.1 % level.
    sorted_noise = noise.double().sort().values
    expected = torch.exp(-torch.exp(-sorted_noise))
    grid = torch.arange(1, count + 1).double() / count
    assert float((expected - grid).abs().max()) < 1.95 / math.sqrt(count)
    assert abs(float(noise.mean()) - EULER_GAMMA) < 0.05


def test_noise_of_neighbouring_tokens_and_positions_is_uncorrelated() -> None:
    ids = torch.arange(256, dtype=torch.int32)
    grid = torch.stack([gumbel(9, position, ids) for position in range(400)])
    for shifted, plain in ((grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1])):
        pairs = torch.stack([shifted.flatten(), plain.flatten()])
        assert abs(float(torch.corrcoef(pairs)[0, 1])) < 4 / math.sqrt(pairs.shape[1])


def chi_square(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"temperature": 1.0}, [0, 1, 2, 3, 4, 5]),
        ({"temperature": 0.5}, [0, 1, 2, 3, 4, 5]),
        ({"temperature": 1.0, "top_k": 3}, [0, 1, 2]),
        ({"temperature": 1.0, "top_p": 0.8}, [0, 1, 2, 3]),
        # top-p acts on what top-k leaves: of 0.4, 0.25, 0.15 the first two reach 0.8 of 0.8.
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.8}, [0, 1]),
    ],
)
def test_tokens_follow_the_distribution(params: dict[str, float], allowed: list[int]) -> None:
    probabilities = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    logits = probabilities.log() + 3.0
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    draws = 4000
    counts = torch.zeros(6)
    for position in range(draws):
        counts[choose(logits, sampling, 11, position)] += 1
    assert counts.sum() == counts[allowed].sum() == draws
    wanted = probabilities[allowed] ** (1 / sampling.temperature)
    critical = {1: 10.8, 2: 13.8, 3: 16.3, 5: 20.5}[len(allowed) - 1]  # the 0.1 % level
    assert chi_square(counts[allowed], wanted / wanted.sum()) < critical


def test_a_flat_nucleus_larger_than_the_first_guess() -> None:
    """10,000 equally likely tokens and top-p 0.5: half of them, sorted whole."""
    logits = torch.zeros(10_000)
    sampling = SamplingParams(top_p=0.5)
    drawn = {choose(logits, sampling, 3, position) for position in range(200)}
    assert len(drawn) > 150 > NUCLEUS_GUESS / 10


def test_one_candidate_is_always_taken() -> None:
    logits = torch.tensor([0.0, 5.0, 1.0])
    for params in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 0.0}, {"temperature": 1e-6}):
        sampling = SamplingParams(**params)
        assert {choose(logits, sampling, seed, 0) for seed in range(300)} == {1}


def test_top_k_larger_than_the_vocabulary() -> None:
    assert choose(torch.tensor([1.0, 2.0]), SamplingParams(top_k=99), 0, 0) in (0, 1)


def test_the_smallest_temperatures_are_greedy() -> None:
    logits = torch.tensor([-30.0, 31.5, 31.4, -torch.inf])
    for temperature in (1e-3, 1e-6, 1e-38, 1e-40, 5e-324):
        sampling = SamplingParams(temperature=temperature)
        assert {choose(logits, sampling, seed, 0) for seed in range(50)} == {1}
