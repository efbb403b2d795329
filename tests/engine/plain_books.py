"""The block pool and the scheduler once more, slow and obvious: lists, scans, texts for digests."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.plan import Draft, SliceResult
from engine.request import FinishReason


class PlainPool:
    """A block is findable under the whole text that ends with it, not under a digest."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.owners = [0] * num_blocks
        self.text: list[tuple[int, ...] | None] = [None] * num_blocks
        self.drafted = [False] * num_blocks
        self.retired = [0] * num_blocks
        self.clock = 0

    def blank(self) -> list[int]:
        return [b for b, n in enumerate(self.owners) if n == 0 and self.text[b] is None]

    def idle(self) -> list[int]:
        """Oldest first."""
        blocks = [b for b, n in enumerate(self.owners) if n == 0 and self.text[b] is not None]
        return sorted(blocks, key=lambda b: self.retired[b])

    def num_free(self) -> int:
        return self.owners.count(0)

    def blocks_for(self, num_tokens: int) -> int:
        return (num_tokens + self.block_size - 1) // self.block_size

    def find(self, tokens: Sequence[int], limit: int) -> list[int]:
        found: list[int] = []
        while len(found) < limit:
            text = tuple(tokens[: (len(found) + 1) * self.block_size])
            if len(text) < (len(found) + 1) * self.block_size or text not in self.text:
                break
            found.append(self.text.index(text))
        return found

    def publish(self, block: int, text: tuple[int, ...]) -> None:
        if text not in self.text:
            self.text[block] = text

    def publish_draft(self, block: int) -> None:
        if self.text[block] is not None:
            self.drafted[block] = True

    def share(self, blocks: list[int], found: list[int]) -> None:
        for block in found:
            self.owners[block] += 1
            blocks.append(block)

    def grow(self, blocks: list[int], num_tokens: int) -> bool:
        missing = max(0, self.blocks_for(num_tokens) - len(blocks))
        if missing > self.num_free():
            return False
        first = blocks[-1] + 1 if blocks else 0
        new: list[int] = []
        wanted = first if blocks else None
        for _ in range(missing):
            new.append(self._take(wanted))
            wanted = new[-1] + 1
        blocks += [b for b in sorted(new) if b >= first] + [b for b in sorted(new) if b < first]
        return True

    def _take(self, wanted: int | None) -> int:
        blank, idle = self.blank(), self.idle()
        if blank:
            block = wanted if wanted in blank else blank[0]
        else:
            middle = (self.retired[idle[0]] + self.clock) / 2
            cold = [b for b in idle if self.retired[b] < middle]
            block = wanted if wanted in cold else idle[0]
        assert block is not None
        self.owners[block], self.text[block], self.drafted[block] = 1, None, False
        return block

    def release(self, blocks: list[int]) -> None:
        while blocks:
            block = blocks.pop()
            self.owners[block] -= 1
            if self.owners[block] == 0 and self.text[block] is not None:
                self.retired[block] = self.clock
                self.clock += 1


@dataclass(eq=False)
class PlainSeq:
    name: str
    priority: int
    arrival: int
    tokens: list[int]
    max_len: int
    stop_id: int
    max_draft: int
    reads_cache: bool
    """False for one that wants the log-probabilities of its prompt."""
    num_prompt: int = 0
    num_told: int = 0
    """Prompt log-probabilities told."""
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    draft_computed: int = 0
    cached: int | None = None

    def __post_init__(self) -> None:
        self.num_prompt = len(self.tokens)

    def rank(self) -> tuple[int, int]:
        return self.priority, self.arrival

    def pending(self) -> int:
        return len(self.tokens) - self.computed

    def decodes(self) -> bool:
        return self.computed > 0 and self.pending() == 1

    def reusable(self, block_size: int) -> int:
        """Blocks that it may take from the cache."""
        if not self.reads_cache and self.num_told < self.num_prompt - 1:
            return self.num_told // block_size
        return (len(self.tokens) - 1) // block_size


PlainSlice = tuple[str, int, int, int, int, tuple[int, ...]]
"""Name, start, tokens, draft length, draft_computed, blocks."""


class PlainScheduler:
    def __init__(
        self, pool: PlainPool, *, max_num_seqs: int, max_step_tokens: int, rungs: dict[int, int]
    ) -> None:
        self.pool = pool
        self.max_num_seqs = max_num_seqs
        self.max_step_tokens = max_step_tokens
        self.rungs = rungs
        self.waiting: list[PlainSeq] = []
        self.running: list[PlainSeq] = []

    def named(self, name: str) -> PlainSeq:
        return next(seq for seq in self.waiting + self.running if seq.name == name)

    def remove(self, seq: PlainSeq) -> None:
        self.pool.release(seq.blocks)
        self.waiting = [other for other in self.waiting if other is not seq]
        self.running = [other for other in self.running if other is not seq]

    def preempt_worst(self) -> None:
        seq = max(self.running, key=PlainSeq.rank)
        self.remove(seq)
        seq.computed = seq.draft_computed = 0
        self.waiting.append(seq)

    def prefilling(self) -> list[PlainSeq]:
        return sorted((s for s in self.running if not s.decodes()), key=PlainSeq.rank)

    def decoding(self) -> list[PlainSeq]:
        return sorted((s for s in self.running if s.decodes()), key=PlainSeq.rank)

    # ---- plan

    def plan(self) -> list[PlainSlice]:
        self.admit()
        slices: list[PlainSlice] = []
        decoding = self.decoding()
        draft_len = next((k for n, k in sorted(self.rungs.items()) if len(decoding) <= n), 0)
        for seq in decoding[: self.max_step_tokens]:
            if seq not in self.running:
                continue
            draft = min(draft_len, seq.max_draft, seq.max_len - len(seq.tokens) - 1)
            if not self.pool.grow(seq.blocks, len(seq.tokens) + draft):
                draft = 0
                while seq in self.running and not self.pool.grow(seq.blocks, len(seq.tokens)):
                    self.preempt_worst()
            if seq in self.running:
                slices.append(self.slice(seq, 1, draft))
        prefilling = self.prefilling()
        shares = dict.fromkeys(prefilling, 0)
        rest = self.max_step_tokens - len(slices)
        for seq in prefilling:
            shares[seq] = min(seq.pending(), (rest + 1) // 2)
            rest -= shares[seq]
        for seq in prefilling:
            while rest and shares[seq] < seq.pending():
                shares[seq] += 1
                rest -= 1
        return slices + [self.slice(seq, n, 0) for seq, n in shares.items() if n]

    def slice(self, seq: PlainSeq, num_tokens: int, draft_len: int) -> PlainSlice:
        size = self.pool.block_size
        for index, block in enumerate(seq.blocks):
            if seq.draft_computed // size == index and self.pool.drafted[block]:
                seq.draft_computed = (index + 1) * size
        return (
            seq.name,
            seq.computed,
            num_tokens,
            draft_len,
            seq.draft_computed,
            tuple(seq.blocks),
        )

    def admit(self) -> None:
        passed_over: list[PlainSeq] = []
        while True:
            queue = [seq for seq in self.waiting if seq not in passed_over]
            if not queue:
                return
            seq = min(queue, key=PlainSeq.rank)
            if self.is_computed_by_another(seq):
                passed_over.append(seq)
                continue
            if not self.would_get_tokens(seq):
                return
            if not self.has_room(seq):
                trial = copy.deepcopy(self)
                while trial.running and max(s.priority for s in trial.running) > seq.priority:
                    trial.preempt_worst()
                if not trial.has_room(seq):
                    return
                while not self.has_room(seq):
                    self.preempt_worst()
            found = self.found(seq)
            self.pool.share(seq.blocks, found)
            assert self.pool.grow(seq.blocks, len(seq.tokens))
            seq.computed = len(found) * self.pool.block_size
            if seq.cached is None:
                seq.cached = seq.computed
            self.waiting = [other for other in self.waiting if other is not seq]
            self.running.append(seq)

    def found(self, seq: PlainSeq) -> list[int]:
        return self.pool.find(seq.tokens, seq.reusable(self.pool.block_size))

    def is_computed_by_another(self, seq: PlainSeq) -> bool:
        size = self.pool.block_size
        for other in self.prefilling():
            end = (other.computed // size + 1) * size
            if (
                other.rank() < seq.rank()
                and end <= len(other.tokens)
                and end <= seq.reusable(size) * size
                and other.tokens[:end] == seq.tokens[:end]
                and tuple(seq.tokens[:end]) not in self.pool.text
            ):
                return True
        return False

    def would_get_tokens(self, seq: PlainSeq) -> bool:
        rest = self.max_step_tokens - len(self.decoding())
        for other in self.prefilling():
            if other.rank() < seq.rank():
                rest -= min(other.pending(), (rest + 1) // 2)
        return rest > 0

    def has_room(self, seq: PlainSeq) -> bool:
        if not self.running:
            return True
        found = self.found(seq)
        needed = self.pool.blocks_for(len(seq.tokens) + 1)
        needed -= len([block for block in found if self.pool.owners[block]])
        spare = self.pool.num_free() - len(self.running)
        return len(self.running) < self.max_num_seqs and needed <= spare

    # ---- commit

    def commit(
        self, slices: Sequence[PlainSlice], drafts: Sequence[Draft], results: Sequence[SliceResult]
    ) -> list[tuple[str, tuple[int, ...], FinishReason | None, int]]:
        """What each request is told: name, tokens, reason, cached tokens."""
        told = []
        for (name, start, num_tokens, *_), draft, result in zip(
            slices, drafts, results, strict=True
        ):
            seq = self.named(name)
            cached = (seq.cached or 0) if len(seq.tokens) == seq.num_prompt else 0
            seq.num_told += len(result.prompt_logprobs)
            emitted: list[int] = []
            reason = None if result.error is None else FinishReason.ERROR
            for token in result.new_tokens:
                if reason is None:
                    emitted.append(token)
                    seq.tokens.append(token)
                    if token == seq.stop_id:
                        reason = FinishReason.STOP
                    elif len(seq.tokens) == seq.max_len:
                        reason = FinishReason.LENGTH
            seq.computed = start + num_tokens + max(0, len(emitted) - 1)
            seq.draft_computed = max(seq.draft_computed, min(draft.num_computed, seq.computed))
            size = self.pool.block_size
            for index, block in enumerate(seq.blocks):
                end = (index + 1) * size
                if start < end <= seq.computed and self.pool.text[block] is None:
                    self.pool.publish(block, tuple(seq.tokens[:end]))
            for index, block in enumerate(seq.blocks):
                if (index + 1) * size <= seq.draft_computed:
                    self.pool.publish_draft(block)
            if reason is not None:
                self.remove(seq)
            if emitted or reason is not None or result.prompt_logprobs:
                told.append((name, tuple(emitted), reason, cached if emitted else 0))
        return told
