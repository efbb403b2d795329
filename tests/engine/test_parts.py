"""The small parts: n-gram look-up, packed linear layers, grouping."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention import Span, paged_attention
from engine.drafters.ngram import NgramDrafter
from engine.kernels.gathered import GatheredBatch
from engine.kv_cache import KVCache, LayerShape
from engine.plan import SeqSlice
from engine.request import SamplingParams
from tests.engine.places import place


def part_of(tokens: list[int], draft_len: int) -> SeqSlice:
    return place(SamplingParams(), prompt=tokens).part._replace(lookup_len=draft_len)


@pytest.mark.parametrize(
    ("tokens", "draft_len", "draft"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 2, (9, 1)),
        ([1, 2, 3, 9, 1, 2, 3], 9, (9, 1, 2, 3, 9, 1, 2, 3, 9)),  # goes on with itself
        ([5, 1, 2, 7, 8, 1, 2, 6, 1, 2], 3, (6, 1, 2)),  # the latest occurrence
        ([4, 1, 2, 3, 7, 1, 2, 8, 1, 2, 3], 1, (7,)),  # the longest suffix first
        ([7, 7, 7, 7], 4, (7, 7, 7, 7)),  # an occurrence may overlap the suffix
        ([1, 2, 3, 4], 4, ()),
        ([1, 2], 4, ()),
        ([1], 4, ()),
        ([2**31 - 1, 256, 2**31 - 1, 256], 1, (2**31 - 1,)),
        ([1, 65536, 256, 1, 65536], 1, (256,)),
    ],
)
def test_ngram_look_up(tokens: list[int], draft_len: int, draft: tuple[int, ...]) -> None:
    drafter = NgramDrafter(max_ngram=3, min_ngram=2)
    ((found),) = drafter.propose([part_of(tokens, draft_len)])
    assert found.token_ids == draft


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4))
def test_ngram_look_up_against_a_plain_search(tokens: list[int], length: int) -> None:
    def plain() -> tuple[int, ...]:
        for size in range(min(length, len(tokens) - 1), 0, -1):
            for start in range(len(tokens) - size - 1, -1, -1):
                if tokens[start : start + size] == tokens[-size:]:
                    again = [*tokens]
                    for _ in range(3):
                        again.append(again[start + size + len(again) - len(tokens)])
                    return tuple(again[len(tokens) :])
        return ()

    (found,) = NgramDrafter(max_ngram=length, min_ngram=1).propose([part_of(tokens, 3)])
    assert found.token_ids == plain()


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=12),
    st.lists(st.sampled_from(["draft", "none", "away"]), min_size=12, max_size=12),
)
def test_an_index_kept_over_the_steps_finds_what_a_new_one_finds(
    pieces: list[list[int]], steps: list[str]
) -> None:
    kept = NgramDrafter(max_ngram=3, min_ngram=1)
    text: list[int] = []
    other = part_of([1, 1, 1], 2)._replace(request_id="other")
    for piece, step in zip(pieces, steps, strict=False):
        text += piece
        part = part_of(text, 0 if step == "none" else 3)._replace(tokens=text)
        found = kept.propose([other] if step == "away" else [other, part])
        if step == "draft":
            fresh = NgramDrafter(max_ngram=3, min_ngram=1)
            assert found[1] == fresh.propose([part_of(text, 3)])[0]


def test_a_request_id_that_comes_again_is_another_text() -> None:
    drafter = NgramDrafter(max_ngram=2, min_ngram=1)
    drafter.propose([part_of([1, 2, 3, 1, 2], 1)])
    (found,) = drafter.propose([part_of([1, 2, 7, 8, 9, 1], 1)])
    assert found.token_ids == (2,)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 300)), min_size=1, max_size=12),
    st.integers(1, 7),
    st.integers(0, 2**32),
)
@settings(deadline=None)
def test_paged_attention_against_plain_attention(
    lengths: list[tuple[int, int]], block_size: int, seed: int
) -> None:
    """Any mix of chunks and contexts, over a shuffled pool, as one causal softmax a sequence."""
    torch.manual_seed(seed % 1000)
    order = random.Random(seed)
    needed = [-(-(new + old) // block_size) for new, old in lengths]
    free = list(range(sum(needed) + 3))
    order.shuffle(free)
    cache = KVCache(
        [LayerShape(2, 4, 4)], len(free), block_size, torch.float32, torch.device("cpu")
    )
    cache.keys[0].normal_()
    cache.values[0].normal_()
    spans = []
    for (new, old), count in zip(lengths, needed, strict=True):
        spans.append(Span(old, new, [free.pop() for _ in range(count)]))
    total = sum(new for new, _ in lengths)
    query, key, value = (
        torch.randn(1, 6, total, 4),
        torch.randn(2, total, 4),
        torch.randn(2, total, 4),
    )
    batch = GatheredBatch.build(cache, spans, torch.device("cpu"))
    module = torch.nn.Identity()
    module.layer_idx = 0  # type: ignore[assignment]
    with batch.attending():
        out, _ = paged_attention(module, query, key[None], value[None], None)
    row = 0
    for span in spans:
        slots = [
            span.block_ids[p // block_size] * block_size + p % block_size for p in range(span.end)
        ]
        k, v = cache.keys[0][:, slots], cache.values[0][:, slots]
        rows = slice(row, row + span.num_tokens)
        assert torch.equal(k[:, span.start :], key[:, rows])
        k, v = k.repeat_interleave(3, 0), v.repeat_interleave(3, 0)
        scores = query[0, :, rows] @ k.transpose(1, 2) / 2
        visible = torch.arange(span.end) <= torch.arange(span.start, span.end)[:, None]
        plain = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v
        torch.testing.assert_close(out[0, rows].transpose(0, 1), plain, rtol=1e-4, atol=1e-5)
        row += span.num_tokens


def test_one_long_sequence_does_not_pad_the_short_ones() -> None:
    cache = KVCache([LayerShape(1, 4, 4)], 700, 16, torch.float32, torch.device("cpu"))
    short = [Span(99, 1, range(7 * i, 7 * i + 7)) for i in range(20)]
    spans = [*short, Span(7999, 1, range(140, 640)), Span(0, 32, range(640, 642))]
    batch = GatheredBatch.build(cache, spans, torch.device("cpu"))
    padded = sum(group.positions.numel() * group.num_slots for group in batch.groups)
    needed = sum(span.num_tokens * span.end for span in spans)
    assert padded < 1.5 * needed
    assert len(batch.groups) == 3
