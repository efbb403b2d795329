"""Drives the scheduler without a model: a slot of the KV holds the text that it was computed from.

So stale, foreign or missing KV shows up as a wrong text, whatever the model would have made of it.
"""

import random
from collections.abc import Sequence as ReadOnly
from typing import Any

from engine.blocks import BlockPool
from engine.plan import NO_DRAFT, Draft, SeqSlice, SliceResult, StepPlan, StepResult
from engine.request import Request, SamplingParams, TokenDelta, TokenLogprobs
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from policy.table import SpeculationTable

STOP = 3
ALPHABET = (1, 2, STOP)


class SymbolicKV:
    """The KV cache of one model: slot -> the text up to and including its token."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[int, tuple[int, ...]] = {}

    def slot(self, block_ids: ReadOnly[int], position: int) -> int:
        return (
            block_ids[position // self._block_size] * self._block_size + position % self._block_size
        )

    def check(self, block_ids: ReadOnly[int], text: tuple[int, ...], end: int) -> None:
        """Assert that a query behind `end` positions of `text` would see just that text."""
        for position in range(end):
            seen = self._slots.get(self.slot(block_ids, position))
            assert seen == text[: position + 1], f"position {position} holds {seen}, not {text}"

    def write(self, block_ids: ReadOnly[int], text: tuple[int, ...], start: int) -> None:
        for position in range(start, len(text)):
            self._slots[self.slot(block_ids, position)] = text[: position + 1]


class Driver:
    """A scheduler whose target and drafter are dice. Checks the KV and the books in every step."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_num_seqs: int = 8,
        max_step_tokens: int = 64,
        rungs: tuple[tuple[int, int], ...] = (),
        has_draft_model: bool = True,
        seed: int = 0,
    ) -> None:
        self.pool = BlockPool(num_blocks, block_size)
        self.scheduler = Scheduler(
            self.pool,
            max_num_seqs=max_num_seqs,
            max_step_tokens=max_step_tokens,
            max_draft_len=8,
        )
        self.table = SpeculationTable(0, rungs)
        self.max_model_len = num_blocks * block_size
        self.num_computed = 0
        """Known tokens that the target has computed."""
        self._target = SymbolicKV(block_size)
        self._draft = SymbolicKV(block_size) if has_draft_model else None
        self._chance = random.Random(seed)

    def add(
        self,
        name: str,
        prompt: ReadOnly[int],
        *,
        max_tokens: int = 4,
        priority: int = 0,
        stop_id: int = STOP,
        **sampling: Any,
    ) -> None:
        request = Request(
            name, tuple(prompt), SamplingParams(max_tokens=max_tokens, **sampling), priority
        )
        self.scheduler.add(
            Sequence(
                request=request,
                seed=0,
                max_len=min(len(prompt) + max_tokens, self.max_model_len),
                tokens=list(prompt),
                stop_ids=frozenset({stop_id}),
            )
        )

    def step(self) -> dict[str, TokenDelta]:
        """One step, and what each request was told."""
        plan = self.scheduler.plan(self.table)
        drafts, results = self.play(plan)
        return {delta.request_id: delta for delta in self.commit(plan, drafts, results)}

    def commit(
        self, plan: StepPlan, drafts: list[Draft], results: list[SliceResult]
    ) -> list[TokenDelta]:
        deltas = self.scheduler.commit(plan, drafts, StepResult(tuple(results), 0.0, 0.0))
        self.scheduler.check_integrity()
        return deltas

    def finish(self) -> None:
        """Step until idle: every block is free then."""
        steps = 0
        while self.scheduler.num_running + self.scheduler.num_waiting:
            self.step()
            steps += 1
            assert steps < 2000, "no progress"
        assert self.pool.num_free == self.pool.num_blocks

    def play(self, plan: StepPlan) -> tuple[list[Draft], list[SliceResult]]:
        drafts = [self._propose(part) for part in plan.slices]
        texts = []
        for part, draft in zip(plan.slices, drafts, strict=True):
            text = (*part.tokens[: part.end], *draft.token_ids)
            self._target.check(part.block_ids, text, part.start)
            texts.append(text)
        written: set[int] = set()
        for part, text in zip(plan.slices, texts, strict=True):
            slots = {self._target.slot(part.block_ids, p) for p in range(part.start, len(text))}
            assert not written & slots, "two sequences write to one slot"
            written |= slots
            self._target.write(part.block_ids, text, part.start)
            self.num_computed += part.num_tokens
        for slot in written:
            block = slot // self.pool.block_size
            assert self.pool.cache.digest(block) is None, "a findable block was written"
        return drafts, [
            self._answer(part, draft) for part, draft in zip(plan.slices, drafts, strict=True)
        ]

    def _propose(self, part: SeqSlice) -> Draft:
        num_tokens = self._chance.randint(0, part.draft_len)
        tokens = tuple(self._chance.choice(ALPHABET) for _ in range(num_tokens))
        if not tokens or self._draft is None:
            return Draft(tokens) if tokens else NO_DRAFT
        # Its own last token is never computed by the draft model.
        text = (*part.tokens[: part.end], *tokens[:-1])
        self._draft.check(part.block_ids, text, part.draft_computed)
        self._draft.write(part.block_ids, text, part.draft_computed)
        return Draft(tokens, len(text))

    def _answer(self, part: SeqSlice, draft: Draft) -> SliceResult:
        told = (TokenLogprobs(0, 0.0, 1, ()),) * part.num_prompt_logprobs
        if not part.samples:
            return SliceResult(prompt_logprobs=told)
        if self._chance.random() < 0.02:
            return SliceResult(error="no luck")
        kept = self._chance.randint(0, len(draft.token_ids))
        refused = draft.token_ids[kept : kept + 1]
        own = self._chance.choice([token for token in ALPHABET if token not in refused])
        return SliceResult((*draft.token_ids[:kept], own), prompt_logprobs=told)
