"""The paper's grid: time per token by batch size and draft length, measured on this machine.

A cell decodes one batch with all of its sequences under way from begin to end, so that, unlike in
the paper's prototype, no cell waits for its slowest row. Each repeat goes through the whole grid on
other prompts, the same ones at every length.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deployments.bench.work import Work
from engine.core import Engine
from engine.evaluate.decoding import Decoding


@dataclass(frozen=True, slots=True)
class Grid:
    batch_sizes: tuple[int, ...]
    lengths: tuple[int, ...]
    """Draft lengths, 0 among them."""
    repeats: int

    @property
    def cells(self) -> list[tuple[int, int, int]]:
        """(repeat, batch size, draft length), in the order in which they are measured."""
        return [
            (repeat, batch_size, length)
            for repeat in range(self.repeats)
            for batch_size in self.batch_sizes
            for length in self.lengths
        ]


@dataclass(frozen=True, slots=True)
class Point:
    """What one cell took, in one repeat."""

    repeat: int
    batch_size: int
    draft_len: int
    steps: int
    seconds: float
    draft_seconds: float
    """Of them, in the drafter."""
    emitted: int
    """Tokens, of all sequences."""
    rounds: int
    """Verifications of one sequence's draft."""
    accepted: int
    """Draft tokens that were kept."""

    @property
    def seconds_per_token(self) -> float:
        """Of each sequence: T(b, s)."""
        return self.seconds * self.batch_size / self.emitted

    @property
    def target_seconds(self) -> float:
        """Of a step, all but drafting: t_L(b, s)."""
        return (self.seconds - self.draft_seconds) / self.steps


def measure(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    grid: Grid,
    new_tokens: int,
    work: Work,
    report: Callable[[int, str], None],
    stopped: Callable[[], bool],
) -> bool:
    """Measure the cells that `work` lacks; whether it has all of them then. `report` is told how
    many are done, and what comes. Raises ConfigError when the engine is too small."""
    decoding = Decoding(engine)
    if any(_key(cell) not in work for cell in grid.cells):
        report(0, "warming up")
        decoding.run(_some(prompts, 1, 0), max(grid.lengths), 8)
    for done, cell in enumerate(grid.cells):
        repeat, batch_size, length = cell
        if _key(cell) in work:
            continue
        if stopped():
            return False
        report(done, f"batch {batch_size}, length {length}")
        decoded = decoding.run(_some(prompts, batch_size, repeat), length, new_tokens)
        window = decoded.window
        point = Point(
            repeat,
            batch_size,
            length,
            decoded.steps,
            decoded.seconds,
            window.draft_seconds,
            window.emitted_tokens,
            window.rounds,
            window.accepted_tokens,
        )
        work.add(_key(cell), asdict(point))
    return True


def points_of(grid: Grid, work: Work) -> list[Point]:
    """Those that were measured."""
    return [Point(**record) for record in work.get(map(_key, grid.cells))]


def points_from_json(document: dict[str, Any]) -> list[Point]:
    """Raises KeyError or TypeError for anything that no run wrote."""
    return [Point(**point) for point in document["points"]]


def _key(cell: tuple[int, int, int]) -> str:
    return "repeat {} batch {} length {}".format(*cell)


def _some(prompts: Sequence[Sequence[int]], batch_size: int, repeat: int) -> list[Sequence[int]]:
    first = repeat * batch_size
    return [prompts[(first + i) % len(prompts)] for i in range(batch_size)]
