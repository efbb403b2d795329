"""Seconds of a target pass and of drafting, measured on an idle engine with made-up sequences."""

import random
import threading
import time
from collections.abc import Callable, Sequence

from engine.blocks import BlockPool
from engine.build import HUGE_PAGES_THREAD
from engine.calibrate.grid import Grid
from engine.calibrate.samples import Point, Seconds
from engine.calibrate.survey import Report, Survey
from engine.core import Engine
from engine.drafters.base import Drafter
from engine.drafters.cascade import CascadeDrafter
from engine.executor import Executor
from engine.plan import NO_DRAFT, Draft, SeqSlice, StepPlan
from engine.request import SamplingParams
from policy.cost import Calibration

MAX_SECONDS = 80.0
_SEED = 0
_TOUCHED_AT_ONCE = 64


def calibrate(
    engine: Engine,
    grid: Grid,
    *,
    report: Report = lambda done, total, what: None,
    stopped: Callable[[], bool] = lambda: False,
    max_seconds: float = MAX_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Measure an engine that has no requests; `default_grid` says what is worth measuring.

    Tokens are arbitrary and their KV is whatever the blocks hold: neither changes the time of a
    step. The blocks come out of the pool and go back, so nothing is findable that was written over,
    and no scheduler takes part, so nothing of this is left behind. `max_seconds` ends it with what
    was measured so far, which is something for each batch size unless it is far too short.

    Raises ValueError for a grid that doesn't fit the engine, RuntimeError while requests are in
    flight, CalibrationStopped.
    """
    needed = grid.contexts[-1] + grid.draft_lens[-1] + 1
    if needed > engine.max_model_len:
        raise ValueError(
            f"contexts must leave room for draft_lens and one token more within "
            f"{engine.max_model_len} tokens, got {grid.contexts[-1]} with {grid.draft_lens[-1]}"
        )
    executor, drafter, pool = engine.parts()
    most_blocks = min(grid.batch_sizes[-1] * pool.blocks_for(needed), pool.num_free)
    block_ids: list[int] = []
    pool.grow(block_ids, most_blocks * pool.block_size)
    try:
        bench = _Bench(engine, executor, drafter, pool, block_ids, clock)
        survey = Survey(
            grid,
            bench.measure,
            max_seconds=max_seconds,
            report=report,
            stopped=stopped,
            clock=clock,
        )
        _wait_for_huge_pages()
        bench.touch()
        return survey.run()
    finally:
        pool.release(block_ids)


def _wait_for_huge_pages() -> None:
    """Moving memory takes time from every step meanwhile, and steps are quicker afterwards."""
    for thread in threading.enumerate():
        if thread.name == HUGE_PAGES_THREAD:
            thread.join()


class _Bench:
    """Rounds of sequences that nobody asked for."""

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        drafter: Drafter,
        pool: BlockPool,
        block_ids: Sequence[int],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._executor = executor
        # A cascade asks its model wherever the text itself offers nothing, which it does here.
        self._drafter = drafter.model if isinstance(drafter, CascadeDrafter) else drafter
        self._pool = pool
        self._block_ids = block_ids
        self._random = random.Random(_SEED)
        self._token_ids = [
            token for token in range(engine.vocab_size) if token not in engine.eos_token_ids
        ]
        self._texts: dict[tuple[int, int], list[int]] = {}

    def measure(self, point: Point) -> Seconds:
        slices = [self._sequence(point, index) for index in range(point.batch_size)]
        drafts = [Draft(tuple(self._tokens(point.draft_len))) for _ in slices]
        plan = StepPlan(
            table_version=0,
            num_decoding=point.batch_size,
            draft_len=point.draft_len,
            slices=tuple(slices),
        )
        drafted = 0.0
        if point.draft_len:
            started = self._clock()
            self._drafter.propose(slices)
            drafted = self._clock() - started
        started = self._clock()
        # Tokens come back as Python's numbers, so an accelerator has done all its work by then.
        self._executor.execute(plan, drafts)
        return Seconds(self._clock() - started, drafted)

    def touch(self) -> None:
        """Compute a token in every block.

        Memory that was never written is one page of zeros, which is read from the nearest cache.
        """
        for first in range(0, len(self._block_ids), _TOUCHED_AT_ONCE):
            slices = [
                _slice(f"touch {block}", self._tokens(1), [block], draft_len=1)
                for block in self._block_ids[first : first + _TOUCHED_AT_ONCE]
            ]
            self._drafter.propose(slices)
            plan = StepPlan(0, len(slices), 0, tuple(slices))
            self._executor.execute(plan, [NO_DRAFT] * len(slices))

    def _sequence(self, point: Point, index: int) -> SeqSlice:
        text = self._texts.get((point.context, index))
        if text is None:
            text = self._texts[point.context, index] = self._tokens(point.context)
        # All its own as long as the pool lasts; then sequences write over each other.
        num_blocks = self._pool.blocks_for(point.context + point.draft_len + 1)
        first = index * num_blocks
        mine = [self._block_ids[i % len(self._block_ids)] for i in range(first, first + num_blocks)]
        return _slice(f"{point.context} {index}", text, mine, draft_len=point.draft_len)

    def _tokens(self, count: int) -> list[int]:
        return self._random.choices(self._token_ids, k=count)


def _slice(
    request_id: str, tokens: Sequence[int], block_ids: Sequence[int], *, draft_len: int
) -> SeqSlice:
    """A sequence that decodes: all its tokens but the last are computed, by the draft too."""
    last = len(tokens) - 1
    return SeqSlice(
        request_id=request_id,
        tokens=tokens,
        num_prompt=len(tokens),
        start=last,
        num_tokens=1,
        block_ids=block_ids,
        draft_len=draft_len,
        lookup_len=draft_len,
        draft_computed=last,
        samples=True,
        logits_from=last,
        sampling=SamplingParams(temperature=0.0),
        seed=0,
        stop_ids=frozenset(),
        grammar=None,
    )
