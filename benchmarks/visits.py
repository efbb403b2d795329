"""One visit of a cell: the policy adapts to it, then all arms take turns for some rounds."""

import random
from collections.abc import Callable, Iterator, Sequence

from benchmarks.arms import Arms, Load, Prompts
from benchmarks.cells import Cell, Round
from benchmarks.peers.workloads import Workload
from benchmarks.progress import Begin

NEW_TOKENS = 64
REPORTS_BEFORE = 2
ROUNDS = 3
"""Of a visit: what else the machine does comes and goes within seconds."""
FURTHER_PROMPTS = {1: 2, 2: 4, 4: 6, 8: 8, 16: 10, 32: 12}
"""By concurrency, those that take the place of the first: a turn takes two or three seconds."""


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
        for number in range(ROUNDS):
            if not has_time():
                return
            if not number:
                begin(f"{what}, adapting")
                self._arms.adapt(self._other_loads(), REPORTS_BEFORE)
            begin(f"{what}, prompts")
            size = cell.concurrency + FURTHER_PROMPTS[cell.concurrency]
            prompts = _batch(self._work, len(cell.rounds) * size, size)
            self._arms.warm_up(Load(prompts, len(prompts)))
            self._round(Load(prompts, cell.concurrency), lambda arm: begin(f"{what}, {arm}"))

    def _round(self, load: Load, begin: Begin) -> None:
        fixed: dict[int, float] = {}
        again = adaptive = None
        order: list[int | str] = [*self._lengths, "off again", "adaptive"]
        self._rng.shuffle(order)
        for arm in order:
            begin(f"length {arm}" if isinstance(arm, int) else arm)
            if isinstance(arm, int):
                fixed[arm] = self._arms.fixed(load, arm)
            elif arm == "adaptive":
                adaptive = self._arms.adaptive(load)
            else:
                again = self._arms.fixed(load, 0)
        assert again is not None
        assert adaptive is not None
        cell = self._cell
        cell.rounds.append(Round(fixed, again, adaptive.tokens_per_second))
        cell.rounds_by_length += adaptive.rounds_by_length
        cell.window.merge_totals(adaptive.window)

    def _other_loads(self) -> Iterator[Load]:
        """From the end of the workload backwards; those that count go forwards."""
        size = 2 * self._cell.concurrency
        first = -size * (1 + self._repeat)
        while True:
            yield Load(_batch(self._work, first, size), self._cell.concurrency)
            first -= size


def _batch(work: Workload, first: int, size: int) -> Prompts:
    return [work.prompts[(first + i) % len(work.prompts)] for i in range(size)]
