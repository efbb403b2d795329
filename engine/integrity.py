"""What must hold of the scheduler's books between two steps."""

from collections.abc import Sequence as ReadOnly

from engine.blocks import BlockPool
from engine.sequence import Sequence


def check_books(pool: BlockPool, waiting: ReadOnly[Sequence], running: ReadOnly[Sequence]) -> None:
    """Assert that blocks, owners and counters agree; fast enough for every step of a test."""
    pool.check_integrity(seq.block_ids for seq in running)
    for queue in (waiting, running):
        ranks = [seq.rank for seq in queue]
        assert ranks == sorted(set(ranks)), "a queue is out of order"
    for seq in waiting:
        assert not seq.block_ids
        assert seq.num_computed == seq.draft_computed == 0
    for seq in running:
        _check_running(pool, seq)


def _check_running(pool: BlockPool, seq: Sequence) -> None:
    assert 0 <= seq.draft_computed <= seq.num_computed < len(seq.tokens) < seq.max_len
    assert len(seq.block_ids) >= pool.blocks_for(len(seq.tokens) - seq.is_decoding)
    assert len(set(seq.block_ids)) == len(seq.block_ids)
    num_full = seq.num_computed // pool.block_size
    for index, block in enumerate(seq.block_ids):
        digest = pool.cache.digest(block)
        if index < num_full:
            # None: another sequence computed the same, and its block is the one to be found.
            assert digest in (None, seq.digests[index]), f"block {block} holds another text"
            assert digest is not None or not pool.cache.has_draft(block)
            assert seq.digests[index] in pool.cache or digest is None
        else:
            assert digest is None, f"block {block} is findable, and will be written"
