"""The scheduler against a slow one, over arrivals, aborts, priorities and tiny pools."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.sequence import Sequence
from tests.engine.plain_books import PlainPool, PlainScheduler, PlainSeq
from tests.engine.symbolic import STOP, Driver

NEVER = 99


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(4, 24),
        block_size=st.integers(1, 3),
        max_num_seqs=st.integers(1, 5),
        max_step_tokens=st.integers(1, 24),
        draft_lens=st.tuples(st.integers(0, 4), st.integers(0, 4)),
        has_draft_model=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def start(
        self,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_step_tokens: int,
        draft_lens: tuple[int, int],
        has_draft_model: bool,
        seed: int,
    ) -> None:
        rungs = ((2, draft_lens[0]), (4, draft_lens[1]))
        self.driver = Driver(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_step_tokens=max_step_tokens,
            rungs=rungs,
            has_draft_model=has_draft_model,
            seed=seed,
        )
        self.plain = PlainScheduler(
            PlainPool(num_blocks, block_size),
            max_num_seqs=max_num_seqs,
            max_step_tokens=max_step_tokens,
            rungs=dict(rungs),
        )
        self.num_added = 0
        self.texts: list[list[int]] = [[1]]
        """What was said so far, for prompts that go on from it."""

    @rule(
        data=st.data(),
        begins_new=st.booleans(),
        more=st.lists(st.integers(1, 2), min_size=1, max_size=12),
        copies=st.sampled_from([1, 1, 2, 3]),
        max_tokens=st.integers(1, 12),
        priority=st.sampled_from([0, 0, 1, 2]),
        stops=st.booleans(),
        max_draft=st.integers(0, 4),
        wants_prompt_logprobs=st.sampled_from([False, False, False, True]),
    )
    def arrive(
        self,
        data: st.DataObject,
        begins_new: bool,
        more: list[int],
        copies: int,
        max_tokens: int,
        priority: int,
        stops: bool,
        max_draft: int,
        wants_prompt_logprobs: bool,
    ) -> None:
        begin = [] if begins_new else data.draw(st.sampled_from(self.texts))
        prompt = [*begin, *more][: self.driver.max_model_len - 1]
        self.texts.append(prompt)
        for _ in range(copies):
            name = str(self.num_added)
            stop_id = STOP if stops else NEVER
            params: dict[str, Any] = {"max_draft_tokens": max_draft}
            if wants_prompt_logprobs:
                params["prompt_logprobs"] = 0
            self.driver.add(
                name, prompt, max_tokens=max_tokens, priority=priority, stop_id=stop_id, **params
            )
            self.plain.waiting.append(
                PlainSeq(
                    name=name,
                    priority=priority,
                    arrival=self.num_added,
                    tokens=list(prompt),
                    max_len=min(len(prompt) + max_tokens, self.driver.max_model_len),
                    stop_id=stop_id,
                    max_draft=max_draft,
                    reads_cache=not wants_prompt_logprobs,
                )
            )
            self.num_added += 1

    @precondition(lambda self: self.plain.waiting or self.plain.running)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.plain.waiting + self.plain.running))
        assert self.driver.scheduler.abort(seq.name)
        assert not self.driver.scheduler.abort(seq.name)
        self.plain.remove(seq)
        self.driver.scheduler.check_integrity()

    @rule(steps=st.integers(1, 6))
    def steps(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        plan = self.driver.scheduler.plan(self.driver.table)
        slices = self.plain.plan()
        assert [
            (
                part.request_id,
                part.start,
                part.num_tokens,
                part.draft_len,
                part.draft_computed,
                tuple(part.block_ids),
            )
            for part in plan.slices
        ] == slices
        assert bool(slices) == bool(self.plain.waiting or self.plain.running), "no progress"
        drafts, results = self.driver.play(plan)
        deltas = self.driver.commit(plan, drafts, results)
        told = self.plain.commit(slices, drafts, results)
        assert told == [
            (d.request_id, d.token_ids, d.finish_reason, d.num_cached_tokens) for d in deltas
        ]
        for queue, plain in (
            (self.driver.scheduler._queues.waiting, self.plain.waiting),
            (self.driver.scheduler._queues.running, self.plain.running),
        ):
            plain.sort(key=PlainSeq.rank)
            assert [self.state(seq) for seq in queue] == [
                (s.name, s.tokens, s.computed, s.draft_computed) for s in plain
            ]
        self.texts += [list(seq.tokens) for seq in self.plain.running]
        assert self.driver.pool.num_free == self.plain.pool.num_free()
        assert self.driver.pool.cache.num_idle == len(self.plain.pool.idle())

    @staticmethod
    def state(seq: Sequence) -> tuple[str, list[int], int, int]:
        return seq.request_id, seq.tokens, seq.num_computed, seq.draft_computed

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for _ in range(3000):
            if not self.plain.waiting and not self.plain.running:
                break
            self.step()
        assert not self.driver.scheduler.num_waiting + self.driver.scheduler.num_running
        assert self.driver.pool.num_free == self.driver.pool.num_blocks


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
