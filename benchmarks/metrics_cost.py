"""What metrics cost: their time on a replica's event loop, against the engine's steps.

With Ray's own recorders, in a process of a real Ray, and with real steps of the model. The engine's
thread does nothing for metrics; what is measured here runs on the event loop beside it, and is
counted as if the engine stood still meanwhile, as it does where all holds the interpreter's lock.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import ray
from rich.console import Console
from rich.table import Table

from benchmarks.actor_limit import simulated_windows
from benchmarks.fleet import MAX_BATCH, MAX_DRAFT_LEN, made_up_calibration
from benchmarks.options import Options, parser
from benchmarks.progress import measuring
from benchmarks.steps import Cell, StepBench
from cluster.metrics.definitions import Outcome
from cluster.metrics.exporter import PERIOD_S, MetricsExporter, Sources
from cluster.metrics.requests import RequestMetrics
from cluster.metrics.serve_instruments import ServeInstruments
from cluster.metrics.windows import WindowMetrics
from cluster.policy_channel import ChannelStatus, ChannelTimings
from deployments.autoscaling.pace import Pace
from deployments.bench.results import Goal, Spread, print_goals, write_json
from deployments.bench.settle import settle
from deployments.generation.times import RequestTimes
from deployments.models.store import resolve_model
from deployments.simulate.costs import profile_of
from engine.core import EngineStatus
from engine.request import TokenDelta
from policy.board import Introduction, initial_publication
from policy.choice import parse_choice

CONTEXT = 256
DELTAS = 64
"""Of a request: steps in which it gets tokens. Short answers end often, which costs most."""
CALLS = 200
MOST_OF_A_STEP = 0.01


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds on the event loop."""

    look_s: float
    """Once a period of the exporter, on average."""
    window_s: float
    """Once a report of the policy channel."""
    request_s: float
    """Of one request, all its deltas and its end."""

    def of_a_step(self, batch_size: int, step_s: float) -> float:
        """Share of a step in which so many sequences get tokens."""
        always = self.look_s / PERIOD_S + self.window_s / ChannelTimings().report_s
        return always + batch_size * self.request_s / DELTAS / step_s


def main() -> None:
    args = parser(__doc__).parse_args(namespace=Options())
    console = Console()
    batch_sizes = (1, 8) if args.quick else (1, 4, 16, 32)
    repeats = 1 if args.quick else args.repeats
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    try:
        cells = [Cell(size, CONTEXT) for size in batch_sizes]
        bench = StepBench(resolve_model(args.model), args.dtype, cells, args.compile_folder)
        settle()
        costs: list[Costs] = []
        steps: dict[Cell, list[float]] = {cell: [] for cell in bench.cells}
        with measuring(console, (repeats + 1) * (1 + len(bench.cells))) as begin:
            for repeat in range(-1, repeats):  # the first one warms up
                begin("metrics")
                measured = measure()
                if repeat >= 0:
                    costs.append(measured)
                for cell in bench.cells:
                    begin(f"batch {cell.batch_size}")
                    seconds = bench.seconds(cell)
                    if repeat >= 0:
                        steps[cell].append(seconds)
    finally:
        ray.shutdown()

    shares = {
        cell.batch_size: Spread.of(
            [
                cost.of_a_step(cell.batch_size, step_s)
                for cost, step_s in zip(costs, steps[cell], strict=True)
            ]
        )
        for cell in bench.cells
    }
    _print_table(console, args.dtype, costs, shares)
    goals = [
        Goal(
            f"metrics, share of a step at batch {size}",
            f"<= {MOST_OF_A_STEP}",
            share.median,
            share.median <= MOST_OF_A_STEP,
        )
        for size, share in shares.items()
    ]
    print_goals(console, goals)
    if args.json is not None:
        results: dict[str, Any] = {
            "benchmark": "metrics_cost",
            "model": args.model,
            "dtype": args.dtype,
            "context": CONTEXT,
            "steps_of_a_request": DELTAS,
            "repeats": repeats,
            "costs": [asdict(cost) for cost in costs],
            "cells": [
                {
                    "batch_size": cell.batch_size,
                    "step_seconds": asdict(Spread.of(steps[cell])),
                    "share": asdict(shares[cell.batch_size]),
                }
                for cell in bench.cells
            ],
        }
        write_json(args.json, results, goals)


def measure() -> Costs:
    """Means over many calls, rare expensive ones among them."""
    instruments = ServeInstruments()
    exporter = _exporter(instruments)
    windows, requests = WindowMetrics(instruments), RequestMetrics(instruments)
    window = simulated_windows(profile_of("a100-7b"))[0]

    def answer() -> None:
        times = RequestTimes(time.monotonic())
        for _ in range(DELTAS):
            times.note(TokenDelta("a", (1, 2)))
        requests.record(times.record(Outcome.FINISHED))

    return Costs(_mean(exporter.look), _mean(lambda: windows.count(window)), _mean(answer))


def _mean(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        work()
    return (time.perf_counter() - started) / CALLS


def _exporter(instruments: ServeInstruments) -> MetricsExporter:
    """Of a busy engine that changes between two looks, with a cost model."""
    introduction = Introduction("", "", MAX_BATCH, MAX_DRAFT_LEN, made_up_calibration())
    pace = Pace(MAX_BATCH, introduction)
    channel = ChannelStatus(initial_publication(parse_choice({"fixed": 4})), True, 1.0)
    steps = 0

    def status() -> EngineStatus:
        nonlocal steps
        steps += 1
        return EngineStatus(
            num_running=MAX_BATCH,
            num_waiting=3,
            num_decoding=MAX_BATCH,
            num_blocks=4096,
            num_free_blocks=100,
            table_version=1,
            draft_len=4,
            steps=steps,
            prefix_cache_queries=100 * steps,
            prefix_cache_hits=40 * steps,
            num_prompt_tokens=100 * steps,
            num_preemptions=steps,
        )

    sources = Sources(
        engine=status,
        channel=lambda: channel,
        speedup=pace.speedup,
        calibrated_at_unix_s=lambda: 0.0,
    )
    return MetricsExporter(instruments, sources, MAX_BATCH)


def _print_table(
    console: Console, dtype: str, costs: list[Costs], shares: dict[int, Spread]
) -> None:
    table = Table(title=f"metrics, {dtype}: median (min to max)")
    table.add_column("what")
    table.add_column("", justify="right")
    for name, each in (
        ("a look, ms", [1000 * cost.look_s for cost in costs]),
        ("a window, ms", [1000 * cost.window_s for cost in costs]),
        ("a request, ms", [1000 * cost.request_s for cost in costs]),
    ):
        table.add_row(name, str(Spread.of(each)))
    for size, share in shares.items():
        table.add_row(f"share of a step, batch {size}", str(share))
    console.print(table)


if __name__ == "__main__":
    main()
