"""How long an engine's own work takes, and how much memory, by sequences. Without a model."""

import cProfile
import pstats
import statistics
import tracemalloc
from pathlib import Path

from benchmarks.simulation import decoding_bench

NUM_PROMPT = 200
NUM_STEPS = 200
LONG_PROMPT = 1000
MOST_LINES = 12


def step_seconds(num_seqs: int, draft_len: int, num_steps: int = NUM_STEPS) -> float:
    """Median of plan, commit and all between, the target's and the drafter's own time left out."""
    bench = decoding_bench(num_seqs, draft_len, NUM_PROMPT, num_steps)
    return statistics.median(bench.step() for _ in range(num_steps))


def where_time_goes(num_seqs: int, draft_len: int) -> list[tuple[str, float]]:
    """The functions with the most time of their own, and their shares of a step, by a profiler."""
    bench = decoding_bench(num_seqs, draft_len, NUM_PROMPT, NUM_STEPS)
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(NUM_STEPS):
        bench.step()
    profile.disable()
    stats = pstats.Stats(profile).get_stats_profile()
    lines = [
        (f"{Path(line.file_name).name}: {name}", line.tottime / stats.total_tt)
        for name, line in stats.func_profiles.items()
    ]
    return sorted(lines, key=lambda line: -line[1])[:MOST_LINES]


def books_bytes(num_seqs: int) -> int:
    """Memory that the engine allocates for so many sequences of LONG_PROMPT tokens: prompts, books
    and the pool's own, but no KV."""
    tracemalloc.start()
    try:
        bench = decoding_bench(num_seqs, 0, LONG_PROMPT, num_steps=1)
        taken = tracemalloc.get_traced_memory()[0]
        bench.engine.close()
        return taken
    finally:
        tracemalloc.stop()
