"""Steps of an engine that has no requests yet, so that the first of a real one is like the rest.

Kernels, buffers and an accelerator's libraries are set up by whatever runs first; and what a token
takes is known before anybody waits for one (`progress.py`).
"""

import time
from collections.abc import Callable

from engine.core import Engine
from engine.plan import NO_DRAFT, SeqSlice, StepPlan
from engine.request import SamplingParams

MOST_TOKENS = 128
"""Enough for a pass over the weights to be shared among many tokens; a fraction of a second, or
seconds with a large model on a CPU."""
PASSES = 2
"""The first sets things up."""


def rehearse(engine: Engine, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a token of a made-up prompt took at best.

    The engine is left as it was: no scheduler takes part, the blocks go back, and nothing of them
    is findable. Raises RuntimeError while there are requests, RankFailed, and what a step raises.
    """
    executor, _, pool = engine.parts()
    free_tokens = pool.num_free * pool.block_size
    count = min(MOST_TOKENS, engine.max_step_tokens, engine.max_model_len - 1, free_tokens)
    block_ids: list[int] = []
    pool.grow(block_ids, count)
    part = SeqSlice(
        request_id="rehearsal",
        tokens=[index % engine.vocab_size for index in range(count)],
        num_prompt=count,
        start=0,
        num_tokens=count,
        block_ids=block_ids,
        draft_len=0,
        lookup_len=0,
        draft_computed=0,
        samples=True,
        logits_from=count - 1,
        sampling=SamplingParams(temperature=0.0),
        seed=0,
        stop_ids=frozenset(),
        grammar=None,
    )
    plan = StepPlan(table_version=0, num_decoding=0, draft_len=0, slices=(part,))
    took: list[float] = []
    try:
        for _ in range(PASSES):
            started = clock()
            executor.execute(plan, [NO_DRAFT])
            took.append(clock() - started)
    finally:
        pool.release(block_ids)
    return min(took) / count
