"""An engine without a model: all of its own work, and none of the target's or the drafter's."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.grammar import GrammarCompiler
from engine.plan import Draft, SeqSlice, SliceResult, StepPlan, StepResult
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs

VOCAB_SIZE = 32_000
BLOCK_SIZE = 16
MAX_MODEL_LEN = 8192


class FakeTarget:
    """Keeps up to `max_accepted` tokens of each draft and adds one of its own, at random."""

    failure: str | None = None

    def __init__(self, max_accepted: int, seed: int = 0) -> None:
        self.seconds = 0.0
        """Spent here, by the thread's own clock: no time of the engine."""
        self._max_accepted = max_accepted
        self._random = random.Random(seed)

    def execute(self, plan: StepPlan, drafts: Sequence[Draft]) -> StepResult:
        started = time.thread_time()
        slices = tuple(
            self._answer(draft) if part.samples else SliceResult()
            for part, draft in zip(plan.slices, drafts, strict=True)
        )
        self.seconds += time.thread_time() - started
        return StepResult(slices, target_seconds=0.0, verify_seconds=0.0)

    def _answer(self, draft: Draft) -> SliceResult:
        num_kept = min(self._random.randint(0, self._max_accepted), len(draft.token_ids))
        return SliceResult((*draft.token_ids[:num_kept], self._random.randrange(VOCAB_SIZE)))

    def close(self) -> None:
        pass


class FakeDrafter:
    """Always drafts the same, as long as asked for."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._drafts = [Draft(tuple(range(5, 5 + length))) for length in range(17)]

    def propose(self, slices: Sequence[SeqSlice]) -> list[Draft]:
        started = time.thread_time()
        drafts = [self._drafts[part.draft_len] for part in slices]
        self.seconds += time.thread_time() - started
        return drafts


class Bench:
    """An engine, and how long its steps take without its target and its drafter."""

    def __init__(self, *, max_num_seqs: int, num_blocks: int, draft_len: int) -> None:
        self._target = FakeTarget(max_accepted=draft_len)
        self._drafter = FakeDrafter()
        no_model = Path()
        self.engine = Engine(
            EngineConfig(
                no_model,
                DrafterConfig(kind="none"),
                max_num_seqs=max_num_seqs,
                max_step_tokens=max(2048, 2 * max_num_seqs),
                block_size=BLOCK_SIZE,
            ),
            executor=self._target,
            drafter=self._drafter,
            num_blocks=num_blocks,
            max_model_len=MAX_MODEL_LEN,
            vocab_size=VOCAB_SIZE,
            eos_token_ids=frozenset({0}),
            grammars=GrammarCompiler(no_model, VOCAB_SIZE, frozenset({0})),
            table=SpeculationTable(0, fixed_rungs(draft_len)),
        )

    def step(self) -> float:
        """One step: the engine's own seconds of computing in it, whatever else the machine does."""
        self._target.seconds = self._drafter.seconds = 0.0
        started = time.thread_time()
        self.engine.step()
        elapsed = time.thread_time() - started
        return elapsed - self._target.seconds - self._drafter.seconds


def decoding_bench(num_seqs: int, draft_len: int, num_prompt: int, num_steps: int) -> Bench:
    """One whose sequences all decode, for so many steps more at least."""
    max_tokens = (num_steps + num_seqs) * (draft_len + 1)
    num_blocks = num_seqs * (-(-(num_prompt + max_tokens) // BLOCK_SIZE) + 2)
    bench = Bench(max_num_seqs=num_seqs, num_blocks=num_blocks, draft_len=draft_len)
    draw = random.Random(0)
    for index in range(num_seqs):
        prompt = tuple(draw.choices(range(VOCAB_SIZE), k=num_prompt))
        bench.engine.add(Request(str(index), prompt, endless(max_tokens)))
    while bench.engine.status().num_decoding < num_seqs:
        bench.engine.step()
    return bench


def endless(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
