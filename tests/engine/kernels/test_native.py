"""The native operators against the batched products of torch."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.attention import Span
from engine.kernels import native
from engine.kernels.gathered import GatheredBatch
from engine.kernels.native import CannotBuild, NativeBatch
from engine.kv_cache import KVCache, LayerShape

CPU = torch.device("cpu")


def turned(keys: torch.Tensor, block_size: int) -> torch.Tensor:
    """Slots of keys, one behind the other, as the operators keep them."""
    heads, slots, dim = keys.shape
    blocks = keys.view(heads, slots // block_size, block_size, dim).transpose(2, 3)
    return blocks.reshape(heads, slots, dim)


def pools(num_blocks: int, block_size: int, shape: LayerShape) -> list[KVCache]:
    """For the operators and for the batched products, full of what freed blocks may hold."""
    first, second = (KVCache([shape], num_blocks, block_size, torch.float32, CPU) for _ in range(2))
    second.keys[0].normal_()
    second.values[0].normal_()
    first.keys[0].copy_(turned(second.keys[0], block_size))
    first.values[0].copy_(second.values[0])
    return [first, second]


def queries_keys_values(
    num_tokens: int, heads: tuple[int, int], dims: tuple[int, int]
) -> list[torch.Tensor]:
    """As models hand them over: views of [1, N, heads, dim]."""
    sizes = ((heads[0], dims[0]), (heads[1], dims[0]), (heads[1], dims[1]))
    return [torch.randn(1, num_tokens, count, dim).transpose(1, 2) for count, dim in sizes]


@pytest.mark.usefixtures("operators")
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 300)), min_size=1, max_size=8),
    st.integers(1, 17),
    st.sampled_from([None, 1, 5, 100]),
    st.sampled_from([None, 3.0]),
    st.sampled_from([(6, 2), (4, 4), (3, 1)]),
    st.sampled_from([(12, 8), (64, 64), (20, 100)]),
    st.integers(0, 2**32),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_attention_is_that_of_the_batched_products(
    lengths: list[tuple[int, int]],
    block_size: int,
    window: int | None,
    softcap: float | None,
    heads: tuple[int, int],
    dims: tuple[int, int],
    seed: int,
) -> None:
    """Any mix of chunks and contexts over a shuffled pool; keys and values of unequal dims."""
    torch.manual_seed(seed % 1000)
    order = random.Random(seed)
    needed = [-(-(new + old) // block_size) for new, old in lengths]
    free = list(range(sum(needed) + 3))
    order.shuffle(free)
    ours, theirs = pools(len(free), block_size, LayerShape(heads[1], *dims))
    spans = [
        Span(old, new, [free.pop() for _ in range(count)])
        for (new, old), count in zip(lengths, needed, strict=True)
    ]
    total = sum(new for new, _ in lengths)
    query, key, value = queries_keys_values(total, heads, dims)
    found = []
    for batch in (NativeBatch.build(ours, spans, CPU), GatheredBatch.build(theirs, spans, CPU)):
        with batch.attending():
            found.append(batch.attend(query, key, value, 0, 0.3, window, softcap))
    assert found[0].shape == (1, total, heads[0], dims[1])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    assert torch.equal(ours.keys[0], turned(theirs.keys[0], block_size))
    assert torch.equal(ours.values[0], theirs.values[0])


@pytest.mark.usefixtures("operators")
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=6),
    st.sampled_from([4, 16, 48]),
    st.sampled_from([None, 20]),
    st.sampled_from([None, 3.0]),
    st.sampled_from([(9, 3), (4, 4)]),
    st.sampled_from([(64, 64), (20, 100)]),
    st.integers(0, 1000),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_token_attends_to_the_same_bits_in_any_chunk_beside_any_other(
    chunks: list[int],
    block_size: int,
    window: int | None,
    softcap: float | None,
    heads: tuple[int, int],
    dims: tuple[int, int],
    seed: int,
) -> None:
    """All tokens at once, or in chunks, each beside another sequence."""
    torch.manual_seed(seed)
    total = sum(chunks)
    num_blocks = -(-total // block_size)
    tokens = queries_keys_values(total + 1, heads, dims)
    own, other = (list(range(first, 2 * num_blocks, 2)) for first in (0, 1))

    def attended(cache: KVCache, spans: list[Span], new: list[torch.Tensor]) -> torch.Tensor:
        batch = NativeBatch.build(cache, spans, CPU)
        with batch.attending():
            return batch.attend(new[0], new[1], new[2], 0, 0.3, window, softcap)[0]

    cache, _ = pools(2 * num_blocks, block_size, LayerShape(heads[1], *dims))
    at_once = attended(cache, [Span(0, total, own)], [part[:, :, :total] for part in tokens])
    cache, _ = pools(2 * num_blocks, block_size, LayerShape(heads[1], *dims))
    start = 0
    for chunk in chunks:
        spans = [Span(start, 1, other), Span(start, chunk, own)]
        end = start + chunk
        new = [torch.cat([part[:, :, total:], part[:, :, start:end]], dim=2) for part in tokens]
        assert torch.equal(attended(cache, spans, new)[1:], at_once[start:end])
        start = end


@pytest.mark.usefixtures("operators")
def test_the_operators_leave_the_process_its_subnormal_numbers() -> None:
    smallest = torch.tensor(1e-45)
    assert smallest * 1.0 > 0.0
    assert float(np.float32(1e-45) * np.float32(1.0)) > 0.0


@pytest.mark.usefixtures("operators")
def test_a_rank_without_heads_attends_to_nothing() -> None:
    cache, _ = pools(2, 4, LayerShape(0, 8, 8))
    batch = NativeBatch.build(cache, [Span(0, 3, [1])], CPU)
    nothing = torch.zeros(1, 0, 3, 8)
    with batch.attending():
        assert batch.attend(nothing, nothing, nothing, 0, 1.0, None, None).shape == (1, 3, 0, 8)


@pytest.mark.parametrize("compiler", ["/nowhere/c++", "/bin/false"])
def test_without_a_working_compiler(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(CannotBuild, match=compiler):
        native.load(tmp_path, lambda _: None)
    assert not list(tmp_path.glob("*.so"))
