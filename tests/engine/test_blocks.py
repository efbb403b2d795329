"""The block pool on its own: what it hands out, in which order, and what it gives up first."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.blocks import BlockPool
from engine.prefix_cache import extend_digests


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32))
@settings(deadline=None)
def test_block_pool_against_a_plain_set(num_blocks: int, block_size: int, seed: int) -> None:
    chance = random.Random(seed)
    pool = BlockPool(num_blocks, block_size)
    owned: list[list[int]] = [[], [], []]
    for _ in range(60):
        blocks = chance.choice(owned)
        if chance.random() < 0.3:
            pool.release(blocks)
        else:
            before = list(blocks)
            wanted = (len(blocks) + chance.randrange(4)) * block_size
            fits = pool.blocks_for(wanted) - len(blocks) <= pool.num_free
            assert pool.grow(blocks, wanted) == fits
            assert blocks[: len(before)] == before
            assert len(blocks) == (pool.blocks_for(wanted) if fits else len(before))
        flat = [block for each in owned for block in each]
        assert len(flat) == len(set(flat)) == num_blocks - pool.num_free
        assert all(0 <= block < num_blocks for block in flat)
        pool.check_integrity(owned)


def test_a_lone_sequence_gets_consecutive_blocks() -> None:
    pool = BlockPool(10, 2)
    blocks: list[int] = []
    for tokens in range(1, 21):
        assert pool.grow(blocks, tokens)
    assert blocks == list(range(10))


def compute(pool: BlockPool, tokens: list[int]) -> list[int]:
    """A sequence that found nothing and computed all of its tokens."""
    blocks: list[int] = []
    assert pool.grow(blocks, len(tokens))
    for block, digest in zip(blocks, digests_of(pool, tokens), strict=False):
        pool.cache.publish(block, digest)
    return blocks


def digests_of(pool: BlockPool, tokens: list[int]) -> list[bytes]:
    digests: list[bytes] = []
    extend_digests(digests, tokens, pool.block_size)
    return digests


def test_blocks_of_a_finished_sequence_are_free_and_found() -> None:
    pool = BlockPool(8, 2)
    tokens = [1, 2, 3, 4, 5]
    blocks = compute(pool, tokens)
    held = list(blocks)
    pool.release(blocks)
    assert (pool.num_free, pool.cache.num_idle) == (8, 2)
    found = pool.cache.find(digests_of(pool, tokens), 2)
    assert found == held[:2]
    pool.share(blocks, found)
    assert (pool.num_free, pool.cache.num_idle) == (6, 0)


def test_blank_blocks_are_used_up_before_anything_is_forgotten() -> None:
    pool = BlockPool(6, 1)
    pool.release(compute(pool, [1, 2, 3]))
    other: list[int] = []
    assert pool.grow(other, 3)
    assert other == [3, 4, 5]
    assert pool.cache.num_idle == 3


def test_the_tail_is_forgotten_before_the_head_and_the_oldest_text_first() -> None:
    pool = BlockPool(6, 1)
    old, new = compute(pool, [1, 2, 3]), compute(pool, [7, 8, 9])
    pool.release(old)
    pool.release(new)
    assert pool.grow([], 2)
    assert pool.cache.find(digests_of(pool, [1, 2, 3]), 3) == [0]
    assert pool.cache.find(digests_of(pool, [7, 8, 9]), 3) == [3, 4, 5]


def test_what_is_used_again_is_young_again() -> None:
    pool = BlockPool(4, 1)
    first, second = compute(pool, [1, 2]), compute(pool, [7, 8])
    pool.release(first)
    pool.release(second)
    pool.share(first, pool.cache.find(digests_of(pool, [1, 2]), 2))
    pool.release(first)
    assert pool.grow([], 2)
    assert pool.cache.find(digests_of(pool, [1, 2]), 2) == [0, 1]
    assert pool.cache.find(digests_of(pool, [7, 8]), 2) == []


def test_a_block_in_use_is_never_given_up() -> None:
    pool = BlockPool(4, 1)
    held = compute(pool, [1, 2, 3])
    also: list[int] = []
    pool.share(also, held)
    pool.release(held)
    assert not pool.grow([], 2)
    assert pool.grow([], 1)
    assert also == [0, 1, 2]


def test_forgotten_blocks_come_in_rising_order() -> None:
    """The tail is forgotten first, but a new text must lie in one run to be read in place."""
    pool = BlockPool(8, 1)
    pool.release(compute(pool, list(range(8))))
    blocks: list[int] = []
    assert pool.grow(blocks, 5)
    assert blocks == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(("age", "last"), [("cold", 2), ("warm", 8)])
def test_a_growing_sequence_takes_a_cold_neighbour_but_not_a_warm_one(age: str, last: int) -> None:
    pool = BlockPool(9, 1)
    growing = compute(pool, [50, 51])
    neighbours, others = compute(pool, [1, 2]), compute(pool, [3, 4, 5, 6, 7])
    for blocks in (neighbours, others) if age == "cold" else (others, neighbours):
        pool.release(blocks)
    assert pool.grow(growing, 3)
    assert growing == [0, 1, last]


def test_two_sequences_that_computed_the_same_keep_their_own_blocks() -> None:
    pool = BlockPool(4, 1)
    one, two = compute(pool, [1, 2]), compute(pool, [1, 2])
    assert (one, two) == ([0, 1], [2, 3])
    pool.check_integrity([one, two])
    pool.release(two)
    assert (pool.num_free, pool.cache.num_idle) == (2, 0)
    assert pool.cache.find(digests_of(pool, [1, 2]), 2) == [0, 1]


def test_draft_kv_is_forgotten_with_the_block() -> None:
    pool = BlockPool(1, 1)
    blocks = compute(pool, [1])
    pool.cache.publish_draft(0)
    pool.release(blocks)
    blocks = compute(pool, [2])
    assert not pool.cache.has_draft(0)
    pool.release(blocks)
    assert pool.cache.find(digests_of(pool, [1]), 1) == []
