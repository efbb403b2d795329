"""Results as tables for a terminal and as cells for the JSON file."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.goals import NotMeasured, our_cell, paired_ratios
from benchmarks.peers.measuring import Cell, Results
from benchmarks.peers.workloads import FIRST_TOKEN, FIRST_TOKEN_PROMPT
from deployments.bench.results import Spread


def print_results(console: Console, results: Results, batch_sizes: Sequence[int]) -> None:
    """A table for each batch size, and one for the first token."""
    for batch_size in batch_sizes:
        _print(
            console,
            results,
            f"tokens/s at batch {batch_size}: median (min to max)",
            [c for c in _cells(results) if c[1] == batch_size and c[0] != FIRST_TOKEN],
        )
    _print(
        console,
        results,
        f"ms to the first token of {FIRST_TOKEN_PROMPT}: median (min to max)",
        [c for c in _cells(results) if c[0] == FIRST_TOKEN],
    )


def print_missing(console: Console, missing: Sequence[NotMeasured]) -> None:
    for goal in missing:
        console.print(f"not measured: {goal.name}, {goal.goal}: {goal.reason}")


def json_cells(results: Results) -> list[dict[str, Any]]:
    """One for each contender at each workload and batch size; a failed one says why."""
    return [_json_cell(results, cell) for cell in _cells(results)]


def _cells(results: Results) -> list[Cell]:
    """Grouped by workload and batch size, in the order in which they were measured."""
    cells = [*results.seconds, *results.failed]
    keys = list(results.new_tokens)
    return sorted(cells, key=lambda cell: keys.index(cell[:2]))


def _print(console: Console, results: Results, title: str, cells: Sequence[Cell]) -> None:
    if not cells:
        return
    table = Table(title=title)
    table.add_column("workload")
    table.add_column("contender")
    table.add_column("measured", justify="right")
    table.add_column("ours, adaptive, is faster, times", justify="right")
    for cell in cells:
        workload, _, contender = cell
        if cell in results.failed:
            table.add_row(workload, contender.name, f"failed: {results.failed[cell]}", "")
            continue
        values = (
            [1e3 * seconds for seconds in results.seconds[cell]]
            if workload == FIRST_TOKEN
            else results.tokens_per_second(cell)
        )
        ours = our_cell(results, cell[0], cell[1])
        ratio = "" if ours is None else str(paired_ratios(results, cell, ours))
        table.add_row(workload, contender.name, str(Spread.of(values)), ratio)
    console.print(table)


def _json_cell(results: Results, cell: Cell) -> dict[str, Any]:
    workload, batch_size, contender = cell
    shown: dict[str, Any] = {
        "workload": workload,
        "batch_size": batch_size,
        "contender": contender.name,
        "peer": contender.peer,
        "mode": contender.mode,
        "draft_len": contender.draft_len,
    }
    if cell in results.failed:
        return {**shown, "failed": results.failed[cell]}
    ours = our_cell(results, cell[0], cell[1])
    return {
        **shown,
        "seconds": asdict(Spread.of(results.seconds[cell])),
        "tokens_per_second": asdict(Spread.of(results.tokens_per_second(cell))),
        "ratio_of_ours": None if ours is None else asdict(paired_ratios(results, cell, ours)),
    }
