"""Whether the adaptive policy is ever worse than a fixed draft length, or than none.

One engine (where weights happen to lie in memory makes two differ by up to a sixth) decodes the
prompts of four workloads at several concurrencies. In a round all arms, each fixed length, length 0
once more and adaptive, take a turn over the same prompts, in an order drawn anew: so many requests
at once, 64 new tokens each, greedy; when one ends the next begins, and the turn is over when there
is none to begin, so that the concurrency is what it says all the time. Before a round the prompts'
KV, the target's and the draft's, is put in the prefix cache, so that every arm finds the same, and
decoding is what is compared.

The policy starts with its calibration, as a replica does, but with nothing learned by earlier runs.
It keeps what it learned from cell to cell, so that each cell begins with a shift of the traffic;
adaptive turns over other prompts come first that are not counted: at least one, until the policy
had two reports (4 s).

Cells are visited in turns until all repeats are done or the time is up; a round that was begun then
is ended, and one that was interrupted does not count. What ratios mean stands in cells.py, and what
counts as the adaptive arm's time in arms.py.
"""

import argparse
import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from transformers import PreTrainedTokenizerFast

from benchmarks.adaptation import introduced_board
from benchmarks.arms import Arms
from benchmarks.cells import Cell, Overall
from benchmarks.drafts import HELP, OWN, drafter_values
from benchmarks.heat_map import plot_cells
from benchmarks.options import Options, parser
from benchmarks.peers.workloads import CHAT, REWRITING, Workload, workloads
from benchmarks.progress import Begin, measuring
from benchmarks.prompts import DEFAULT_PROMPTS, chat_prompts, first_turns
from benchmarks.visits import NEW_TOKENS, ROUNDS, Visit
from deployments.bench.results import Spread, print_goals, write_json
from deployments.bench.settle import settle
from deployments.config import parse_config
from engine.build import build_engine
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.model import load_tokenizer
from policy.table import SpeculationTable

MATHS, CODE = "maths", "code"
CONCURRENCIES = (1, 2, 4, 8, 16, 32)
LOG_WIDTH = 150
KV_CACHE_MB = 1024
"""All prompts of a turn stay in the prefix cache."""


class NeverWorseOptions(Options):
    draft: str
    lengths: tuple[int, ...]
    minutes: float
    plot: Path | None
    prompts: Path


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    workloads: tuple[str, ...] = (CHAT, MATHS, CODE, REWRITING)
    concurrencies: tuple[int, ...] = CONCURRENCIES


QUICK = Extent((CHAT, REWRITING), (1, 4))


def main() -> None:
    """Measure, print, draw, write."""
    started = time.monotonic()
    args = _arguments()
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)  # the table is wide
    extent = QUICK if args.quick else Extent()
    config = _engine_config(args)
    if max(args.lengths) > config.max_draft_len:
        raise ConfigError(
            f"--lengths: no draft is longer than {config.max_draft_len}, got {max(args.lengths)}"
        )
    works = _workloads(args.prompts, load_tokenizer(config.model), extent)

    def tell(stage: str) -> None:
        console.print(f"{stage} ...", markup=False)

    engine = build_engine(config, SpeculationTable(0, ()), tell)
    board = introduced_board(engine, config, tell, is_quick=args.quick)
    arms = Arms(engine, board, NEW_TOKENS)
    settle()

    cells = {(w.name, c): Cell(w.name, c) for w in works for c in extent.concurrencies}
    repeats = 1 if args.quick else args.repeats

    def write(*, is_complete: bool) -> None:
        if args.json is None:
            return
        measured = [cell for cell in cells.values() if cell.rounds]
        results: dict[str, Any] = {
            "benchmark": "never_worse",
            "model": args.model,
            "drafter": config.drafter.kind,
            "draft": None if config.drafter.model is None else config.drafter.model.name,
            "dtype": config.dtype,
            "compiled": config.compile_folder is not None,
            "new_tokens": NEW_TOKENS,
            "lengths": list(args.lengths),
            "repeats": repeats,
            "is_complete": is_complete,
            "overall": asdict(Overall.of(measured)) if measured else None,
            "cells": [cell.as_json() for cell in measured],
            "board_seconds": asdict(Spread.of(arms.board_seconds)) if arms.board_seconds else None,
            "history": [asdict(entry) for entry in board.history],
        }
        write_json(args.json, results, Overall.of(measured).goals() if measured else [])

    is_complete = False
    # Of each visit the adapting, of each round the prompts and all arms.
    num_turns = len(extent.concurrencies) * (1 + ROUNDS * (len(args.lengths) + 3))
    with measuring(console, num_turns * len(works) * repeats) as begin:
        begin = _told(begin, console)
        for repeat in range(repeats):
            for work in works:
                for concurrency in extent.concurrencies:
                    cell = cells[work.name, concurrency]
                    visit = Visit(arms, cell, work, args.lengths, repeat)
                    visit.measure(begin, lambda: time.monotonic() - started < 60 * args.minutes)
                    if cell.rounds:
                        cell.explained = str(board.explain(concurrency)["text"])
                    write(is_complete=False)
        is_complete = all(len(cell.rounds) == ROUNDS * repeats for cell in cells.values())

    measured = [cell for cell in cells.values() if cell.rounds]
    if measured:
        _print_table(console, measured, config.dtype)
        print_goals(console, Overall.of(measured).goals())
        if args.plot is not None:
            plot_cells(args.plot, measured)
    else:
        console.print("no round was completed")
    write(is_complete=is_complete)


def _workloads(folder: Path, tokenizer: PreTrainedTokenizerFast, extent: Extent) -> list[Workload]:
    """Raises ConfigError where there are fewer prompts than are to be answered at once."""
    with gzip.open(folder / "humaneval.jsonl.gz", "rt", encoding="utf-8") as lines:
        functions = [json.loads(line)["prompt"] for line in lines]
    tasks = [f"Complete the following Python function.\n\n{text}" for text in functions]
    texts = {MATHS: first_turns(folder / "gsm8k_80.jsonl"), CODE: tasks}
    found = {work.name: work for work in workloads(folder, tokenizer)}
    for name, asked in texts.items():
        found[name] = Workload(name, tuple(map(tuple, chat_prompts(asked, tokenizer))))
    chosen = [found[name] for name in extent.workloads]
    for work in chosen:
        if len(work.prompts) < max(extent.concurrencies):
            raise ConfigError(
                f"--prompts: {max(extent.concurrencies)} different prompts are needed for "
                f"{work.name}, got {len(work.prompts)}"
            )
    return chosen


def _engine_config(args: NeverWorseOptions) -> EngineConfig:
    """As a replica would have it, so that the calibration is the same. Raises ConfigError."""
    values = {
        "model": args.model,
        "drafter": drafter_values(args.draft),
        "engine": {
            "dtype": args.dtype,
            "compile": not args.eager,
            "max_num_seqs": max(CONCURRENCIES),
            "kv_cache_mb": KV_CACHE_MB,
        },
    }
    return parse_config(values, "options").engine_config()


def _told(begin: Begin, console: Console) -> Begin:
    """A line for each visit where there is no terminal to draw a bar in."""
    if console.is_terminal:
        return begin

    def tell(what: str) -> None:
        begin(what)
        if what.endswith("adapting"):
            console.print(f"{time.strftime('%H:%M:%S')} {what.removesuffix(', adapting')}")

    return tell


def _print_table(console: Console, cells: Sequence[Cell], dtype: str) -> None:
    table = Table(title=f"tokens/s, {dtype}: medians; ratios: median (min to max)")
    for column in ("workload", "batch", "off", "noise", "best fixed", "adaptive", "lengths"):
        table.add_column(column, justify="right")
    for column in ("x off", "x best fixed", "goals"):
        table.add_column(column, justify="right")
    for cell in cells:
        best = cell.best_fixed
        shares = cell.shares_by_length.items()
        table.add_row(
            cell.workload,
            str(cell.concurrency),
            f"{cell.median_rate(0):.3g}",
            f"{cell.noise:.1%}",
            f"{cell.median_rate(best):.3g} (length {best})",
            f"{Spread.of([one.adaptive for one in cell.rounds]).median:.3g}",
            ", ".join(f"{length}: {share:.0%}" for length, share in shares if share >= 0.005),
            str(cell.over(0)),
            str(cell.over(best)),
            cell.verdict,
        )
    console.print(table)
    overall = Overall.of(cells)
    console.print(
        f"over length 0: x {overall.mean_gain_over_off:.3f}; over length "
        f"{overall.best_single_fixed}, the best single one: "
        f"x {overall.mean_gain_over_best_single_fixed:.3f} (geometric means over cells)"
    )
    for cell in cells:
        if cell.verdict != "holds":
            line = f"{cell.workload}, {cell.verdict}: {cell.explained}"
            console.print(line, markup=False, soft_wrap=True)


def _arguments() -> NeverWorseOptions:
    options = parser(__doc__, repeats=2)
    options.add_argument("--draft", default=OWN, help=HELP)
    options.add_argument("--lengths", type=_lengths, default="0,1,2,3,4,6,8", help="fixed ones")
    options.add_argument("--minutes", type=float, default=30.0, help="no round begins after these")
    options.add_argument("--plot", type=Path, help="draw a heat map of the ratios, as PNG")
    options.add_argument("--prompts", type=Path, default=DEFAULT_PROMPTS)
    args = options.parse_args(namespace=NeverWorseOptions())
    if args.quick:
        args.lengths = tuple(length for length in args.lengths if length in (0, 2))
    return args


def _lengths(text: str) -> tuple[int, ...]:
    try:
        lengths = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers and commas, got {text!r}") from None
    if lengths[0] != 0:
        raise argparse.ArgumentTypeError(f"must hold 0 and nothing below it, got {text!r}")
    return lengths


if __name__ == "__main__":
    main()
