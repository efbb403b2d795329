"""The block pool: which KV blocks are free. A block holds `block_size` tokens of one sequence."""

import heapq


class BlockPool:
    """Hands out block ids and takes them back.

    A sequence grows into the block right behind its last one where that is free, else into the
    lowest free block: runs of consecutive blocks let attention read the cache in place.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_free = num_blocks
        self._is_free = bytearray(b"\x01") * num_blocks
        # The heap may hold blocks that were taken as a neighbour meanwhile; `_in_heap` keeps a
        # block from being pushed twice, so the heap never outgrows the pool.
        self._heap = list(range(num_blocks))
        self._in_heap = bytearray(b"\x01") * num_blocks

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` slots take."""
        return -(-num_tokens // self.block_size)

    def grow(self, block_ids: list[int], num_tokens: int) -> bool:
        """Extend `block_ids` in place to hold `num_tokens`; False, and no change, if it can't."""
        missing = self.blocks_for(num_tokens) - len(block_ids)
        if missing > self.num_free:
            return False
        for _ in range(missing):
            block_ids.append(self._take(block_ids[-1] + 1 if block_ids else self.num_blocks))
        return True

    def release(self, block_ids: list[int]) -> None:
        """Give back all of `block_ids` and empty the list."""
        for block in block_ids:
            assert not self._is_free[block], f"block {block} freed twice"
            self._is_free[block] = 1
            if not self._in_heap[block]:
                self._in_heap[block] = 1
                heapq.heappush(self._heap, block)
        self.num_free += len(block_ids)
        block_ids.clear()

    def _take(self, preferred: int) -> int:
        block = preferred
        if preferred >= self.num_blocks or not self._is_free[preferred]:
            block = self._pop_lowest()
        self._is_free[block] = 0
        self.num_free -= 1
        return block

    def _pop_lowest(self) -> int:
        while True:
            block = heapq.heappop(self._heap)
            self._in_heap[block] = 0
            if self._is_free[block]:
                return block
