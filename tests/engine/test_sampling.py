"""The sampling rule: the noise is a fair Gumbel, and the tokens follow the distribution."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import noise
from engine.candidates import Candidates, DeviceRows, HostRows, Sieve
from engine.kernels import choice
from engine.request import SamplingParams
from engine.sampling import Choose
from engine.sampling import choose as choose_in_numpy
from tests.engine.places import place

ChooseOne = Callable[[torch.Tensor, SamplingParams, int, int], int]
EULER_GAMMA = 0.5772156649


def gumbel(seed: int, position: int, token_ids: torch.Tensor) -> torch.Tensor:
    hashes = noise.hashes(noise.keys([(seed, position)]), token_ids.numpy().astype(np.uint32))
    return torch.from_numpy(noise.gumbel(noise.uniform(hashes)))


@pytest.fixture(scope="session", params=["in numpy", "by the operator"])
def choose(request: pytest.FixtureRequest) -> Choose:
    if request.param == "in numpy":
        return choose_in_numpy
    request.getfixturevalue("operators")
    return choice.choose


@pytest.fixture(scope="session")
def choose_one(choose: Choose) -> ChooseOne:
    def choose_one(logits: torch.Tensor, sampling: SamplingParams, seed: int, position: int) -> int:
        return choose([logits], [place(sampling, seed=seed, position=position)])[0]

    return choose_one


def test_noise_depends_on_seed_position_and_token_alone() -> None:
    ids = torch.arange(1000, dtype=torch.int32)
    drawn = gumbel(42, 7, ids)
    assert torch.equal(drawn, gumbel(42, 7, ids))
    assert torch.equal(drawn[500:], gumbel(42, 7, ids[500:]))
    assert not torch.equal(drawn, gumbel(43, 7, ids))
    assert not torch.equal(drawn, gumbel(42, 8, ids))
    assert torch.equal(gumbel(-1, 0, ids), gumbel(2**64 - 1, 0, ids))


@pytest.mark.parametrize("axis", ["tokens", "positions", "seeds"])
def test_noise_is_gumbel_along_every_axis(axis: str) -> None:
    count = 20_000
    one = torch.tensor([5], dtype=torch.int32)
    if axis == "tokens":
        drawn = gumbel(1, 2, torch.arange(count, dtype=torch.int32))
    elif axis == "positions":
        drawn = torch.cat([gumbel(1, position, one) for position in range(count)])
    else:
        drawn = torch.cat([gumbel(seed, 2, one) for seed in range(count)])
    assert torch.isfinite(drawn).all()
    # Kolmogorov-Smirnov against exp(-exp(-x)); 1.95 / sqrt(n) is the 0.1 % level.
    sorted_drawn = drawn.double().sort().values
    expected = torch.exp(-torch.exp(-sorted_drawn))
    grid = torch.arange(1, count + 1).double() / count
    assert float((expected - grid).abs().max()) < 1.95 / math.sqrt(count)
    assert abs(float(drawn.mean()) - EULER_GAMMA) < 0.05


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
        ({"temperature": 1.0, "top_p": 0.75}, [0, 1, 2]),
        # top-p acts on what top-k leaves: of 0.4, 0.25, 0.15 the first two reach 0.8 of 0.8.
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.8}, [0, 1]),
    ],
)
def test_tokens_follow_the_distribution(
    choose_one: ChooseOne, params: dict[str, float], allowed: list[int]
) -> None:
    probabilities = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    logits = probabilities.log() + 3.0
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    draws = 4000
    counts = torch.zeros(6)
    for position in range(draws):
        counts[choose_one(logits, sampling, 11, position + 1)] += 1
    assert counts.sum() == counts[allowed].sum() == draws
    wanted = probabilities[allowed] ** (1 / sampling.temperature)
    critical = {1: 10.8, 2: 13.8, 3: 16.3, 5: 20.5}[len(allowed) - 1]  # the 0.1 % level
    assert chi_square(counts[allowed], wanted / wanted.sum()) < critical


def slow_choice(
    logits: torch.Tensor, sampling: SamplingParams, seed: int, position: int
) -> tuple[int, float]:
    """The documented rule, sorted and in float64; and by how much the choice was made: the least
    distance of a token's likelihood, or of the winner, from where the choice would be another."""
    scaled = logits.double() / sampling.temperature
    gaps = []
    keep = torch.ones(len(logits), dtype=torch.bool)
    if sampling.min_p:
        distance = scaled - scaled.max() - math.log(sampling.min_p)
        gaps.append(float(distance.abs().min()))
        keep &= distance >= 0
    if 0 < sampling.top_k < len(logits):
        ranked = scaled.sort(descending=True).values
        gaps.append(float(ranked[sampling.top_k - 1] - ranked[sampling.top_k]))
        keep &= scaled >= ranked[sampling.top_k - 1]
    if sampling.top_p < 1:
        p = scaled.masked_fill(~keep, -torch.inf).softmax(0)
        likelier = torch.stack([p[p > own].sum() for own in p])
        gaps.append(float((likelier - sampling.top_p).abs().min()))
        keep &= likelier < sampling.top_p
    drawn = gumbel(seed, position, torch.arange(len(logits), dtype=torch.int32)).double()
    raced = (scaled + drawn).masked_fill(~keep, -torch.inf)
    best = raced.topk(2).values
    return int(raced.argmax()), min([float(best[0] - best[1]), *gaps])


@given(
    st.integers(0, 2**32),
    st.sampled_from([1e-5, 1e-3, 0.05, 0.7, 1.0, 2.0]),
    st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.01]),
    st.sampled_from([0, 1, 3, 100, 299, 300, 5000]),
    st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    st.sampled_from([0.1, 1.0, 4.0, 15.0]),
    st.sampled_from([60, 300, 700]),
)
@settings(deadline=None, max_examples=150)
def test_choices_are_those_of_the_rule_computed_slowly(
    choose: Choose,
    seed: int,
    temperature: float,
    top_p: float,
    top_k: int,
    min_p: float,
    spread: float,
    vocab: int,
) -> None:
    torch.manual_seed(seed)
    sampling = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
    logits = torch.randn(4, vocab) * spread
    logits[:, ::7] = -torch.inf
    # At the smallest temperatures, some that noise can still put in another order.
    logits[:, 1::7] = 40.0 + torch.randn_like(logits[:, 1::7]) * temperature
    tokens = choose([*logits], [place(sampling, seed=seed, position=i + 1) for i in range(4)])
    for row, token in enumerate(tokens):
        expected, gap = slow_choice(logits[row], sampling, seed, row + 1)
        assert token == expected or gap < 1e-5


def test_among_many_unlikely_tokens_some_are_drawn(choose_one: ChooseOne) -> None:
    # Each is so unlikely that its hash alone tells whether it contends; together they weigh 0.45.
    logits = torch.full((20_000,), -10.7)
    logits[7] = 0.0
    num_unlikely = 0
    for position in range(1, 201):
        token = choose_one(logits, SamplingParams(), 3, position)
        expected, gap = slow_choice(logits, SamplingParams(), 3, position)
        assert token == expected or gap < 1e-5
        num_unlikely += token != 7
    assert 50 < num_unlikely < 140


def test_other_dtypes_and_strides_are_the_same_numbers(choose: Choose) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(200, 8) * 5).bfloat16()
    places = [place(SamplingParams(top_p=0.9), seed=i, position=1) for i in range(8)]
    assert choose([*logits.T], places) == choose([*logits.float().T.contiguous()], places)
    assert choose([], []) == []


def test_rows_do_not_see_each_other(choose: Choose) -> None:
    torch.manual_seed(0)
    logits = torch.randn(12, 500) * 5
    kinds = [
        SamplingParams(temperature=0.0),
        SamplingParams(),
        SamplingParams(top_p=0.9, temperature=0.5),
        SamplingParams(top_k=5, min_p=0.01),
    ]
    places = [place(kinds[i % 4], seed=i % 5, position=i + 1) for i in range(12)]
    together = choose([*logits], places)
    assert together == [choose([logits[i]], [places[i]])[0] for i in range(12)]


@given(st.integers(0, 2**32), st.sampled_from([60, 64, 5000]))
@settings(deadline=None, max_examples=30)
def test_an_accelerator_finds_the_candidates_that_the_host_finds(seed: int, vocab: int) -> None:
    torch.manual_seed(seed)
    logits = [*(torch.randn(5, vocab) * 5)]
    logits[1][3:9] = logits[1].max() + 1
    logits[2][:-1] = -torch.inf
    key = noise.keys([(seed, 1)])[0]
    sieves = {
        0: Sieve(floor=2.0),
        4: Sieve(floor=4.0, key=key, largest_hash=2**28),
        1: Sieve(top_k=3),
        2: Sieve(floor=-1.0, top_k=70),
    }
    host, device = HostRows(logits), DeviceRows(logits)
    assert host.likeliest() == device.likeliest()
    assert device.sift({}) == {}
    for rows in (sieves, {4: sieves[4]}):
        found = host.sift(rows)
        on_device = device.sift(rows)
        assert [*found] == [*on_device] == [*rows]
        for row, candidates in found.items():
            assert_same(candidates, on_device[row])
    for row in range(5):
        assert host.mass(row, 3.0, 2.0) == pytest.approx(device.mass(row, 3.0, 2.0))
    wanted = (logits[4] >= 4.0) | (torch.from_numpy(noise.hashes(key, all_ids(vocab)) <= 2**28))
    assert found[4].token_ids.tolist() == wanted.nonzero()[:, 0].tolist()
    top_k = host.sift({1: sieves[1]})[1]
    assert {*logits[1].topk(3).indices.tolist()} <= {*top_k.token_ids.tolist()}


def all_ids(vocab: int) -> Any:
    return np.arange(vocab, dtype=np.uint32)


def assert_same(a: Candidates, b: Candidates) -> None:
    assert a.token_ids.tolist() == b.token_ids.tolist()
    assert a.logits.tolist() == b.logits.tolist()


def test_a_row_without_numbers_does_not_change_its_neighbour(
    choose: Choose, choose_one: ChooseOne
) -> None:
    # Two largest ones in one row and none in the other are as many as there are rows.
    logits = torch.tensor([[torch.nan, 1.0, 2.0], [5.0, 1.0, 5.0]])
    for sampling in (SamplingParams(temperature=0.0), SamplingParams(top_p=1e-9)):
        together = choose([*logits], [place(sampling, position=1)] * 2)
        assert together[1] == choose_one(logits[1], sampling, 0, 1)


FILTERS: list[dict[str, Any]] = [
    {},
    {"top_p": 0.9},
    {"top_k": 3},
    {"min_p": 0.1},
    {"top_k": 3, "top_p": 0.5},
    {"top_k": 3, "top_p": 0.5, "min_p": 0.1},
]


@pytest.mark.parametrize("params", [*FILTERS, {"temperature": 0.0}])
def test_logits_that_are_no_numbers_end_in_some_token(
    choose_one: ChooseOne, params: dict[str, Any]
) -> None:
    sampling = SamplingParams(**params)
    for logits in (torch.full((9,), torch.nan), torch.full((9,), -torch.inf)):
        assert 0 <= choose_one(logits, sampling, 0, 1) < 9
    for row in ([0.0, 1.0, torch.inf, torch.inf], [-torch.inf, torch.inf, 1.0, 0.0]):
        assert row[choose_one(torch.tensor(row), sampling, 0, 1)] == torch.inf


def test_one_candidate_is_always_taken(choose_one: ChooseOne) -> None:
    logits = torch.tensor([0.0, 5.0, 1.0])
    for params in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 0.0}, {"temperature": 1e-6}):
        sampling = SamplingParams(**params)
        assert {choose_one(logits, sampling, seed, 1) for seed in range(300)} == {1}


def test_top_k_larger_than_the_vocabulary(choose_one: ChooseOne) -> None:
    assert choose_one(torch.tensor([1.0, 2.0]), SamplingParams(top_k=99), 0, 1) in (0, 1)


@pytest.mark.parametrize("params", FILTERS)
def test_the_smallest_temperatures_are_greedy(
    choose_one: ChooseOne, params: dict[str, Any]
) -> None:
    logits = torch.tensor([-30.0, 31.5, 31.4, -torch.inf])
    for temperature in (1e-3, 1e-4, 1e-5, 1e-6, 1e-38, 1e-40, 5e-324):
        sampling = SamplingParams(temperature=temperature, **params)
        assert {choose_one(logits, sampling, seed, 1) for seed in range(50)} == {1}
