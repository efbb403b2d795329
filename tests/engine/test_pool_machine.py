"""The block pool and its prefix cache against plain lists, under any order of operations."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.blocks import BlockPool
from engine.prefix_cache import extend_digests
from tests.engine.plain_books import PlainPool


@dataclass(eq=False)
class Owner:
    tokens: list[int]
    digests: list[bytes] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    plain_blocks: list[int] = field(default_factory=list)
    num_computed: int = 0


# Two tokens only, so that texts often begin alike.
TEXT = st.lists(st.integers(0, 1), min_size=1, max_size=14)


class PoolMachine(RuleBasedStateMachine):
    @initialize(num_blocks=st.integers(1, 12), block_size=st.integers(1, 3))
    def start(self, num_blocks: int, block_size: int) -> None:
        self.pool = BlockPool(num_blocks, block_size)
        self.plain = PlainPool(num_blocks, block_size)
        self.owners: list[Owner] = []

    @rule(tokens=TEXT)
    def admit(self, tokens: list[int]) -> None:
        """Share what is found of a text's beginning, and grow for the rest if there is room."""
        owner = Owner(tokens)
        size = self.pool.block_size
        extend_digests(owner.digests, tokens, size)
        limit = (len(tokens) - 1) // size
        found = self.pool.cache.find(owner.digests, limit)
        assert found == self.plain.find(tokens, limit)
        assert self.pool.num_in_use(found) == sum(self.plain.owners[b] > 0 for b in found)
        self.pool.share(owner.blocks, found)
        self.plain.share(owner.plain_blocks, found)
        owner.num_computed = len(found) * size
        self.owners.append(owner)
        self.grow(owner, len(tokens))

    def grow(self, owner: Owner, num_tokens: int) -> None:
        before = list(owner.blocks)
        grown = self.pool.grow(owner.blocks, num_tokens)
        assert grown == self.plain.grow(owner.plain_blocks, num_tokens)
        assert grown or owner.blocks == before

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), more=TEXT)
    def extend(self, data: st.DataObject, more: list[int]) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        owner.tokens += more
        self.grow(owner, len(owner.tokens))

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        size = self.pool.block_size
        last = min(len(owner.tokens), len(owner.blocks) * size)
        end = data.draw(st.integers(owner.num_computed, max(owner.num_computed, last)))
        extend_digests(owner.digests, owner.tokens, size)
        for index in range(owner.num_computed // size, end // size):
            self.pool.cache.publish(owner.blocks[index], owner.digests[index])
            self.plain.publish(owner.blocks[index], tuple(owner.tokens[: (index + 1) * size]))
        owner.num_computed = end

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def draft(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        for block in owner.blocks[: owner.num_computed // self.pool.block_size]:
            self.pool.cache.publish_draft(block)
            self.plain.publish_draft(block)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        self.owners.remove(owner)
        self.pool.release(owner.blocks)
        self.plain.release(owner.plain_blocks)
        assert owner.blocks == []

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity(owner.blocks for owner in self.owners)
        assert [owner.blocks for owner in self.owners] == [o.plain_blocks for o in self.owners]
        assert self.pool.num_free == self.plain.num_free()
        assert self.pool.cache.num_idle == len(self.plain.idle())
        for block, text in enumerate(self.plain.text):
            assert (self.pool.cache.digest(block) is None) == (text is None)
            assert self.pool.cache.has_draft(block) == self.plain.drafted[block]


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
