"""How step time, scheduling and memory grow with sequences and context, and with a day of work.

Four measurements: decoding steps of the real model beside the roofline of this machine; what the
engine's own work adds to a step, with a target that takes no time; the memory of its books; and an
hour of arrivals in virtual time, over which scheduling must not get slower.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.day import Part, simulate
from benchmarks.options import Options, parser
from benchmarks.progress import Begin, measuring
from benchmarks.report import Goal, Spread, print_goals, write_json
from benchmarks.roofline import Machine, matmul_rate, read_bandwidth
from benchmarks.scheduling import books_bytes, step_seconds, where_time_goes
from benchmarks.steps import Cell, StepBench
from deployments.models.store import resolve_model
from engine.model import DTYPES

MOST_SEQS = 256
DRAFT_LENS = (0, 4)
LONGEST_SCHEDULING = 1e-3
"""Seconds of a step, at MOST_SEQS."""
LEAST_FLATNESS = 0.95
DAY_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Grid:
    """How much is measured."""

    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    contexts: tuple[int, ...] = (128, 512, 2048, 8192)
    scheduled: tuple[int, ...] = (16, 64, 128, MOST_SEQS)
    booked: tuple[int, ...] = (64, 256, 1024)
    day_seconds: float = DAY_SECONDS

    @property
    def cells(self) -> list[Cell]:
        return [Cell(batch, context) for context in self.contexts for batch in self.batches]


QUICK = Grid((1, 4, 16), (128, 512), (16, MOST_SEQS), (64, 256), DAY_SECONDS / 20)


@dataclass(slots=True)
class Measured:
    """What there is so far."""

    machine: Machine | None = None
    steps: dict[Cell, list[float]] = field(default_factory=dict)
    scheduling: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    """Seconds by sequences and draft length."""
    profiles: dict[int, list[tuple[str, float]]] = field(default_factory=dict)
    """Where the time goes, by draft length, where a goal was missed."""
    books: dict[int, int] = field(default_factory=dict)
    day: list[Part] = field(default_factory=list)


class ScalingOptions(Options):
    plots: Path | None


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--plots", type=Path, help="write figures into this folder (PNG and SVG)")
    args = options.parse_args(namespace=ScalingOptions())
    console = Console()
    grid = QUICK if args.quick else Grid()
    repeats = 1 if args.quick else args.repeats
    folder = resolve_model(args.model)
    bench = StepBench(folder, args.dtype, grid.cells, args.compile_folder)
    for cell, reason in bench.skipped.items():
        console.print(f"skipped: batch {cell.batch_size}, context {cell.context}: {reason}")

    measured = Measured()
    total = (repeats + 1) * (1 + len(bench.cells)) + repeats * len(DRAFT_LENS) * len(grid.scheduled)
    with measuring(console, total + len(grid.booked) + 10) as begin:
        _measure_steps(measured, bench, repeats, begin)
        _measure_scheduling(measured, grid, repeats, begin)
        for num_seqs in grid.booked:
            begin(f"memory of {num_seqs} sequences")
            measured.books[num_seqs] = books_bytes(num_seqs)
        measured.day.extend(simulate(grid.day_seconds, begin_part=begin))

    results = _results(measured, bench, DTYPES[args.dtype].itemsize)
    _print_tables(console, measured, results, args.dtype)
    if args.plots is not None:
        _plot(args.plots, measured, results)
    goals = _goals(measured)
    print_goals(console, goals)
    if args.json is not None:
        about = {
            "benchmark": "scaling",
            "model": args.model,
            "dtype": args.dtype,
            "compiled": bench.is_compiled,
            "repeats": repeats,
        }
        write_json(args.json, about | results, goals)
