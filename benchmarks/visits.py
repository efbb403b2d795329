"""One visit of a cell: the policy adapts to it, then all arms take turns for some rounds."""

import random
from collections.abc import Callable, Iterator, Sequence

from benchmarks.arms import Arms, Prompts
from benchmarks.cells import Cell, Round
from benchmarks.peers.workloads import Workload
from benchmarks.progress import Begin

NEW_TOKENS = 64
REPORTS_BEFORE = 2
PROMPTS_PER_VISIT = 4
"""At least, for each arm."""


class Visit:
    """Some rounds of one cell."""

    def __init__(
        self, arms: Arms, cell: Cell, work: Workload, lengths: Sequence[int], repeat: int
    ) -> None:
        self._arms = arms
        self._cell = cell
        self._work = work
        self._lengths = lengths
        self._repeat = repeat
        self._rng = random.Random(f"{cell.workload} {cell.concurrency} {repeat}")

    def measure(self, begin: Begin, has_time: Callable[[], bool]) -> None:
        """Add rounds to the cell until there are as many as belong to a visit."""
        cell, what = self._cell, f"{self._cell.workload}, batch {self._cell.concurrency}"
        for number in range(rounds_of_visit(cell.concurrency)):
            if not has_time():
                return
            if not number:
                begin(f"{what}, adapting")
                self._arms.adapt(self._other_prompts(), REPORTS_BEFORE)
            begin(f"{what}, prompts")
            prompts = _batch(self._work, len(cell.rounds) * cell.concurrency, cell.concurrency)
            self._arms.warm_up(prompts)
            self._round(prompts, lambda arm: begin(f"{what}, {arm}"))

    def _round(self, prompts: Prompts, begin: Begin) -> None:
        num_tokens = NEW_TOKENS * len(prompts)
        fixed: dict[int, float] = {}
        again = adaptive = None
        order: list[int | str] = [*self._lengths, "off again", "adaptive"]
        self._rng.shuffle(order)
        for arm in order:
            begin(f"length {arm}" if isinstance(arm, int) else arm)
            if isinstance(arm, int):
                fixed[arm] = num_tokens / self._arms.fixed(prompts, arm)
            elif arm == "adaptive":
                adaptive = self._arms.adaptive(prompts)
            else:
                again = num_tokens / self._arms.fixed(prompts, 0)
        assert again is not None
        assert adaptive is not None
        cell = self._cell
        cell.rounds.append(Round(fixed, again, num_tokens / adaptive.seconds))
        cell.rounds_by_length += adaptive.rounds_by_length
        cell.window.merge_totals(adaptive.window)

    def _other_prompts(self) -> Iterator[Prompts]:
        """From the end of the workload backwards; those that count go forwards."""
        size = self._cell.concurrency
        first = -size * (1 + self._repeat)
        while True:
            yield _batch(self._work, first, size)
            first -= size


def _batch(work: Workload, first: int, size: int) -> Prompts:
    return [work.prompts[(first + i) % len(work.prompts)] for i in range(size)]


def rounds_of_visit(concurrency: int) -> int:
    """Few requests at once are soon answered, and say little."""
    return -(-PROMPTS_PER_VISIT // concurrency)
