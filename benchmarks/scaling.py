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
from benchmarks.roofline import Machine, matmul_rate, read_bandwidth
from benchmarks.scheduling import books_bytes, step_seconds, where_time_goes
from benchmarks.steps import Cell, StepBench
from deployments.bench.results import Goal, Spread, print_goals, write_json
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
        for part in simulate(grid.day_seconds, begin_part=begin):
            measured.day.append(part)

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


def _measure_steps(measured: Measured, bench: StepBench, repeats: int, begin: Begin) -> None:
    machines: list[Machine] = []
    for repeat in range(-1, repeats):  # the first round warms up
        begin("read bandwidth, float32 products")
        machines.append(Machine(read_bandwidth(), matmul_rate()))
        # What the machine can do is its best, not its average.
        measured.machine = Machine(
            max(machine.bytes_per_second for machine in machines),
            max(machine.flops_per_second for machine in machines),
        )
        for cell in bench.cells:
            begin(f"batch {cell.batch_size}, context {cell.context}")
            seconds = bench.seconds(cell)
            if repeat >= 0:
                measured.steps.setdefault(cell, []).append(seconds)


def _measure_scheduling(measured: Measured, grid: Grid, repeats: int, begin: Begin) -> None:
    for _ in range(repeats):
        for draft_len in DRAFT_LENS:
            for num_seqs in grid.scheduled:
                begin(f"scheduling {num_seqs}, drafts of {draft_len}")
                seconds = step_seconds(num_seqs, draft_len)
                measured.scheduling.setdefault((num_seqs, draft_len), []).append(seconds)
    for draft_len in DRAFT_LENS:
        if Spread.of(measured.scheduling[MOST_SEQS, draft_len]).median > LONGEST_SCHEDULING:
            measured.profiles[draft_len] = where_time_goes(MOST_SEQS, draft_len)


def _results(measured: Measured, bench: StepBench, itemsize: int) -> dict[str, Any]:
    """As they go into the JSON file."""
    machine = measured.machine
    return {
        "machine": None if machine is None else asdict(machine),
        "skipped": [asdict(cell) | {"reason": why} for cell, why in bench.skipped.items()],
        "steps": [
            {
                **asdict(cell),
                "seconds": asdict(Spread.of(seconds)),
                "roofline_seconds": machine.seconds(
                    bench.cost.step([cell.context] * cell.batch_size, 1, itemsize)
                ),
            }
            for cell, seconds in measured.steps.items()
            if machine is not None
        ],
        "scheduling": [
            {
                "num_seqs": num_seqs,
                "draft_len": draft_len,
                "seconds": asdict(Spread.of(seconds)),
            }
            for (num_seqs, draft_len), seconds in measured.scheduling.items()
        ],
        "profiles": measured.profiles,
        "books_bytes": measured.books,
        "day": [
            asdict(part) | {"steps_per_second": part.steps_per_second} for part in measured.day
        ],
    }


def _print_tables(
    console: Console, measured: Measured, results: dict[str, Any], dtype: str
) -> None:
    if measured.machine is not None:
        console.print(
            f"memory is read at {measured.machine.bytes_per_second / 1e9:.1f} GB/s, float32 "
            f"products run at {measured.machine.flops_per_second / 1e9:.0f} Gflop/s"
        )
    steps = _table(
        f"decoding step, {dtype}: median (min to max)",
        ("batch", "context", "ms", "roofline, ms", "x roofline"),
    )
    for cell in results["steps"]:
        spread, least = Spread(**cell["seconds"]), cell["roofline_seconds"]
        steps.add_row(
            str(cell["batch_size"]),
            str(cell["context"]),
            _milliseconds(spread),
            f"{1e3 * least:.3g}",
            f"{spread.median / least:.2f}",
        )
    scheduling = _table(
        "the engine's own work in a step: median (min to max)", ("sequences", "drafts of", "ms")
    )
    for cell in results["scheduling"]:
        spread = Spread(**cell["seconds"])
        scheduling.add_row(str(cell["num_seqs"]), str(cell["draft_len"]), _milliseconds(spread))
    books = _table("memory without KV, prompts of 1000 tokens", ("sequences", "MB", "KB each"))
    for num_seqs, taken in measured.books.items():
        books.add_row(str(num_seqs), f"{taken / 1e6:.1f}", f"{taken / 1e3 / num_seqs:.1f}")
    day = _table(
        "simulated day", ("tenth", "requests", "running", "steps/s of scheduling", "resident, MB")
    )
    for index, part in enumerate(measured.day, 1):
        day.add_row(
            str(index),
            str(part.requests),
            f"{part.running / part.steps:.1f}",
            f"{part.steps_per_second:.0f}",
            f"{part.resident_bytes / 1e6:.1f}",
        )
    for table in (steps, scheduling, books, day):
        console.print(table)
    for draft_len, lines in measured.profiles.items():
        table = _table(f"where it goes, drafts of {draft_len}", ("function", "of the time"))
        for name, share in lines:
            table.add_row(name, f"{share:.0%}")
        console.print(table)
    if len(measured.day) > 1:
        growth = measured.day[-1].resident_bytes - measured.day[0].resident_bytes
        console.print(f"resident memory grew by {growth / 1e6:.1f} MB from the first tenth on")


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _milliseconds(seconds: Spread) -> str:
    return str(Spread(1e3 * seconds.median, 1e3 * seconds.minimum, 1e3 * seconds.maximum))


def _plot(folder: Path, measured: Measured, results: dict[str, Any]) -> None:
    from benchmarks import plots  # needs the extra `bench`

    if results["steps"]:
        plots.plot_steps(folder, results["steps"])
    if results["scheduling"]:
        plots.plot_scheduling(folder, results["scheduling"], LONGEST_SCHEDULING)
    if measured.books:
        plots.plot_memory(folder, measured.books)
    if results["day"]:
        plots.plot_day(folder, results["day"])


def _goals(measured: Measured) -> list[Goal]:
    goals = []
    for draft_len in DRAFT_LENS:
        if (MOST_SEQS, draft_len) in measured.scheduling:
            milliseconds = 1e3 * Spread.of(measured.scheduling[MOST_SEQS, draft_len]).median
            name = f"scheduling a step of {MOST_SEQS} sequences, drafts of {draft_len}"
            limit = 1e3 * LONGEST_SCHEDULING
            goals.append(Goal(name, f"<= {limit:g} ms", milliseconds, milliseconds <= limit))
    if len(measured.day) == 10:
        flatness = measured.day[-1].steps_per_second / measured.day[0].steps_per_second
        name = "scheduling rate of a simulated day, last tenth / first"
        goals.append(Goal(name, f">= {LEAST_FLATNESS}", flatness, flatness >= LEAST_FLATNESS))
    return goals


if __name__ == "__main__":
    main()
