"""The prefix cache: KV blocks found again by the tokens that they hold.

A full block goes by a digest of its tokens and, through its parent's digest, of all tokens before
it. So equal digests mean equal tokens at equal positions, and those have equal KV.
"""

from collections import OrderedDict
from collections.abc import Sequence as ReadOnly
from hashlib import blake2b
from struct import pack

_BYTES = 8
"""Of a packed token."""


def extend_digests(
    digests: list[bytes], tokens: ReadOnly[int], block_size: int, salt: str = ""
) -> None:
    """Append the digests of all full blocks of `tokens` that `digests` lacks. Under another salt a
    text goes by other digests.

    They are cryptographic: whoever could make two texts collide would read with another's KV.
    """
    first, end = len(digests) * block_size, len(tokens) // block_size * block_size
    if first >= end:
        return
    # As long as any other parent, so that no salt reads as the beginning of a block.
    root = blake2b(salt.encode(), digest_size=32).digest() if salt else b""
    parent = digests[-1] if digests else root
    packed = pack(f"{end - first}q", *tokens[first:end])
    for start in range(0, len(packed), _BYTES * block_size):
        block = packed[start : start + _BYTES * block_size]
        parent = blake2b(parent + block, digest_size=32).digest()
        digests.append(parent)


class PrefixCache:
    """Which blocks are findable, and in what order idle ones are given up.

    blank --publish--> findable, in use --retire--> findable, idle --forget--> blank
                                        <--revive--

    Idle means that no sequence holds the block. A findable block is full and never written by the
    target again. One digest has at most one block: what a second sequence computed at the same time
    stays its own and is blank once that one lets go.
    """

    def __init__(self, num_blocks: int) -> None:
        self._block_of: dict[bytes, int] = {}
        self._digest_of: list[bytes | None] = [None] * num_blocks
        self._has_draft = bytearray(num_blocks)
        self._idle: OrderedDict[int, int] = (
            OrderedDict()
        )  # block: when it was retired, oldest first
        self._clock = 0  # blocks retired so far

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._block_of

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def digest(self, block: int) -> bytes | None:
        """What the block is findable under; None if it is not."""
        return self._digest_of[block]

    def find(self, digests: ReadOnly[bytes], limit: int) -> list[int]:
        """Blocks of the longest findable prefix, at most `limit`."""
        found: list[int] = []
        for digest in digests[:limit]:
            block = self._block_of.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def publish(self, block: int, digest: bytes) -> None:
        """Make a block findable whose tokens the target has computed, unless another one is."""
        assert self._digest_of[block] is None, f"block {block} published twice"
        if digest not in self._block_of:
            self._block_of[digest] = block
            self._digest_of[block] = digest

    def publish_draft(self, block: int) -> None:
        """Note that the draft model, too, has computed all of a findable block."""
        self._has_draft[block] = self._digest_of[block] is not None

    def has_draft(self, block: int) -> bool:
        """Whether the draft model's KV in a findable block is complete."""
        return bool(self._has_draft[block])

    def retire(self, block: int) -> bool:
        """Keep a block that its last owner let go of; False if it is not findable."""
        if self._digest_of[block] is None:
            return False
        self._idle[block] = self._clock
        self._clock += 1
        return True

    def revive(self, block: int) -> None:
        """An idle block is in use again."""
        del self._idle[block]

    def is_idle(self, block: int) -> bool:
        return block in self._idle

    def oldest(self) -> int:
        """The block that has been idle longest."""
        return next(iter(self._idle))

    def is_cold(self, block: int) -> bool:
        """Whether the block was retired in the older half of the time that idle blocks span."""
        retired = self._idle.get(block)
        return retired is not None and 2 * retired < self._idle[self.oldest()] + self._clock

    def forget(self, block: int) -> None:
        """Make an idle block blank, so that it can be given away."""
        digest = self._digest_of[block]
        assert digest is not None
        del self._idle[block], self._block_of[digest]
        self._digest_of[block] = None
        self._has_draft[block] = 0

    def check_integrity(self) -> None:
        """Assert that both directions of the index agree and that idle blocks are in order."""
        findable = {b: d for b, d in enumerate(self._digest_of) if d is not None}
        assert findable == {block: digest for digest, block in self._block_of.items()}
        assert self._idle.keys() <= findable.keys(), "an idle block is not findable"
        times = list(self._idle.values())
        assert times == sorted(set(times)), "idle blocks out of order"
        assert all(0 <= time < self._clock for time in times)
        assert all(b in findable for b, flag in enumerate(self._has_draft) if flag), (
            "a blank block counts as drafted"
        )
