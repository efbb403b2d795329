"""A server's day without a model: does scheduling get slower, or memory fill up, as time goes by?

Time is virtual. The target takes a fixed time for a step, which is added to a clock and not waited
for; requests arrive by that clock, at random. What is measured is the real time of the engine's own
work.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.simulation import VOCAB_SIZE, Bench, endless
from engine.request import Request

DRAFT_LEN = 4
SECONDS_PER_STEP = 0.05
REQUESTS_PER_SECOND = 16.0
NUM_PREFIXES = 50
"""Prompts begin with one of so many texts, as those of few applications do."""
PREFIX_TOKENS = 128
MOST_PROMPT_TOKENS = 256
MOST_NEW_TOKENS = 200
MAX_NUM_SEQS = 128
NUM_BLOCKS = 8192
NUM_PARTS = 10


@dataclass(slots=True)
class Part:
    """A stretch of the day."""

    steps: int = 0
    requests: int = 0
    running: int = 0
    """Sum over the steps."""
    engine_seconds: float = 0.0
    """Of the engine's own work."""
    resident_bytes: int = 0
    """At the end."""

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.engine_seconds


def simulate(
    virtual_seconds: float, seed: int = 0, begin_part: Callable[[str], None] = lambda _: None
) -> Iterator[Part]:
    """The parts of the day, one by one as they end, each a tenth of it."""
    draw = random.Random(seed)
    prefixes = [_tokens(draw, PREFIX_TOKENS) for _ in range(NUM_PREFIXES)]
    bench = Bench(max_num_seqs=MAX_NUM_SEQS, num_blocks=NUM_BLOCKS, draft_len=DRAFT_LEN)
    engine = bench.engine
    clock, num_arrived = 0.0, 0
    next_arrival = draw.expovariate(REQUESTS_PER_SECOND)
    for index in range(NUM_PARTS):
        begin_part(f"simulated day, part {index + 1}")
        part = Part()
        end = virtual_seconds * (index + 1) / NUM_PARTS
        while clock < end:
            if not engine.has_work:
                clock = max(clock, next_arrival)
            while next_arrival <= clock:
                prompt = draw.choice(prefixes) + _tokens(draw, draw.randint(1, MOST_PROMPT_TOKENS))
                sampling = endless(draw.randint(1, MOST_NEW_TOKENS))
                engine.add(Request(str(num_arrived), prompt, sampling))
                num_arrived += 1
                part.requests += 1
                next_arrival += draw.expovariate(REQUESTS_PER_SECOND)
            part.engine_seconds += bench.step()
            part.running += engine.status().num_running
            part.steps += 1
            clock += SECONDS_PER_STEP
        part.resident_bytes = resident_bytes()
        yield part


def _tokens(draw: random.Random, count: int) -> tuple[int, ...]:
    return tuple(draw.choices(range(VOCAB_SIZE), k=count))


def resident_bytes() -> int:
    """Memory of this process that lies in RAM."""
    num_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return num_pages * os.sysconf("SC_PAGE_SIZE")
