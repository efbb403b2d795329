"""The block pool: who holds which KV blocks. A block holds `block_size` tokens."""

import heapq
from collections.abc import Iterable
from collections.abc import Sequence as ReadOnly

from engine.prefix_cache import PrefixCache


class BlockPool:
    """Hands out block ids, shares what the prefix cache finds, and takes blocks back.

    Every block is in use (one owner or more), idle (free, its content still findable) or blank.
    Runs of consecutive blocks let attention read the cache in place, so a sequence grows into the
    block right behind its last one where that is blank, else into the lowest blank one. Only when
    no blank block is left does the pool give up idle ones: that neighbour if it is cold, else
    whichever has been idle longest.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.cache = PrefixCache(num_blocks)
        self._num_owners = [0] * num_blocks
        self._num_blank = num_blocks
        self._is_blank = bytearray(b"\x01") * num_blocks
        # The heap may hold blocks that were taken as a neighbour meanwhile; `_in_heap` keeps a
        # block from being pushed twice, so the heap never outgrows the pool.
        self._heap = list(range(num_blocks))
        self._in_heap = bytearray(b"\x01") * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks without an owner, idle ones included."""
        return self._num_blank + self.cache.num_idle

    def num_in_use(self, block_ids: ReadOnly[int]) -> int:
        """How many of `block_ids` have an owner: sharing them costs no free block."""
        return sum(self._num_owners[block] > 0 for block in block_ids)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` slots take."""
        return -(-num_tokens // self.block_size)

    def share(self, block_ids: list[int], found: ReadOnly[int]) -> None:
        """Make the owner of `block_ids`, an empty list, one more owner of findable blocks."""
        assert not block_ids
        for block in found:
            if not self._num_owners[block]:
                self.cache.revive(block)
            self._num_owners[block] += 1
        block_ids.extend(found)

    def grow(self, block_ids: list[int], num_tokens: int) -> bool:
        """Extend `block_ids` in place to hold `num_tokens`; False, and no change, if it can't."""
        missing = self.blocks_for(num_tokens) - len(block_ids)
        if missing > self._num_blank and missing > self.num_free:
            return False
        if missing == 1 and block_ids:
            block_ids.append(self._take(block_ids[-1] + 1))
            return True
        behind = block_ids[-1] + 1 if block_ids else 0
        preferred = behind if block_ids else self.num_blocks
        taken: list[int] = []
        for _ in range(missing):
            taken.append(self._take(preferred))
            preferred = taken[-1] + 1
        # Idle blocks go tail first, so they come in falling order; ascending they are a run again.
        taken.sort(key=lambda block: (block - behind) % self.num_blocks)
        block_ids.extend(taken)
        return True

    def release(self, block_ids: list[int]) -> None:
        """Let go of all of `block_ids` and empty the list."""
        # The tail first, so that it is given up before the head, without which nothing finds it.
        for block in reversed(block_ids):
            assert self._num_owners[block] > 0, f"block {block} freed twice"
            self._num_owners[block] -= 1
            if not self._num_owners[block] and not self.cache.retire(block):
                self._blank(block)
        block_ids.clear()

    def _blank(self, block: int) -> None:
        self._is_blank[block] = 1
        self._num_blank += 1
        if not self._in_heap[block]:
            self._in_heap[block] = 1
            heapq.heappush(self._heap, block)

    def _take(self, preferred: int) -> int:
        if not self._num_blank:
            block = preferred if self.cache.is_cold(preferred) else self.cache.oldest()
            self.cache.forget(block)
        else:
            is_blank = preferred < self.num_blocks and self._is_blank[preferred]
            block = preferred if is_blank else self._pop_lowest()
            self._is_blank[block] = 0
            self._num_blank -= 1
        self._num_owners[block] = 1
        return block

    def _pop_lowest(self) -> int:
        while True:
            block = heapq.heappop(self._heap)
            self._in_heap[block] = 0
            if self._is_blank[block]:
                return block

    def check_integrity(self, owned: Iterable[ReadOnly[int]]) -> None:
        """Assert that the books agree with what the owners hold (one list of blocks each)."""
        num_owners = [0] * self.num_blocks
        for block_ids in owned:
            for block in block_ids:
                num_owners[block] += 1
        assert self._num_owners == num_owners, "a block's owners are miscounted"
        self.cache.check_integrity()
        num_used = self.num_blocks - num_owners.count(0)
        assert num_used + self.num_free == self.num_blocks, "blocks leaked"
        assert sum(self._is_blank) == self._num_blank
        for block, count in enumerate(num_owners):
            findable = self.cache.digest(block) is not None
            assert self._is_blank[block] == (count == 0 and not findable)
            assert self.cache.is_idle(block) == (count == 0 and findable)
            assert count <= 1 or findable, f"block {block} is shared and not findable"
            assert self._in_heap[block] or not self._is_blank[block], "a blank block is lost"
