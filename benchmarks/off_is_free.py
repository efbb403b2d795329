"""What a drafter costs while the table says length 0: tokens per second against no drafter at all.

Each drafter has an engine, which makes one of two neighbouring steps with it and one with none in
its place, in an order drawn anew each time; a ratio is of medians over the steps of a run. The text
is the same, and whatever else the machine does meets both. Two engines would not do: where their
weights happen to lie in memory makes them differ by up to a sixth.
"""

import random
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.options import Options, parser
from benchmarks.progress import measuring
from benchmarks.prompts import DEFAULT_PROMPTS, chat_prompts, first_turns
from deployments.bench.results import Goal, Spread, print_goals, write_json
from deployments.bench.settle import settle
from deployments.models.store import resolve_model
from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.drafters.base import NoDrafter
from engine.model import load_tokenizer
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable

NEW_TOKENS = 64
LEAST_RATIO = 0.98
Rates = dict[tuple[int, str], list[tuple[float, float]]]
"""Tokens per second by batch size and drafter, with it and without, for each repeat."""


class OffOptions(Options):
    draft: Path | None


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--draft", type=Path, help="a draft model's folder, measured as well")
    args = options.parse_args(namespace=OffOptions())
    console = Console()
    batch_sizes = (1, 4) if args.quick else (1, 2, 4, 8, 16, 32)
    repeats = 1 if args.quick else args.repeats
    drafters = [DrafterConfig(kind="ngram")]
    if args.draft is not None:
        drafters.append(DrafterConfig(kind="model", model=args.draft))
    folder = resolve_model(args.model)
    engines: dict[str, Engine] = {
        drafter.kind: build_engine(
            EngineConfig(
                model=folder,
                drafter=drafter,
                dtype=args.dtype,
                compile_folder=args.compile_folder,
            ),
            SpeculationTable(0, ()),
        )
        for drafter in drafters
    }
    texts = first_turns(DEFAULT_PROMPTS / "mt_bench_80.jsonl", max(batch_sizes))
    prompts = chat_prompts(texts, load_tokenizer(folder))

    settle()
    rates: Rates = {}
    rng = random.Random(0)
    with measuring(console, len(batch_sizes) * (repeats + 1) * len(engines)) as begin:
        for batch_size in batch_sizes:
            for repeat in range(-1, repeats):  # the first round warms up
                for kind, engine in engines.items():
                    begin(f"batch {batch_size}, {kind}")
                    measured = _tokens_per_second(engine, prompts[:batch_size], rng)
                    if repeat >= 0:
                        pair = (measured[True], measured[False])
                        rates.setdefault((batch_size, kind), []).append(pair)

    cells = _cells(rates)
    _print_table(console, cells, args.dtype)
    goals = [
        Goal(
            f"length 0, drafter {cell['drafter']}, batch {cell['batch_size']}: x no drafter",
            f">= {LEAST_RATIO}",
            cell["ratio"]["median"],
            cell["ratio"]["median"] >= LEAST_RATIO,
        )
        for cell in cells
    ]
    print_goals(console, goals)
    if args.json is not None:
        results: dict[str, Any] = {
            "benchmark": "off_is_free",
            "model": args.model,
            "draft": None if args.draft is None else args.draft.name,
            "dtype": args.dtype,
            "compiled": args.compile_folder is not None,
            "new_tokens": NEW_TOKENS,
            "repeats": repeats,
            "cells": cells,
        }
        write_json(args.json, results, goals)


def _tokens_per_second(
    engine: Engine, prompts: list[list[int]], rng: random.Random
) -> dict[bool, float]:
    """Of decoding, greedily: with the engine's drafter, and without."""
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    engine.add(*(Request(str(i), tuple(prompt), sampling) for i, prompt in enumerate(prompts)))
    while engine.status().num_decoding < len(prompts):
        engine.step()
    own, seconds = engine._drafter, {True: list[float](), False: list[float]()}
    while engine.status().num_decoding == len(prompts):
        for has_drafter in rng.sample([True, False], 2):
            engine._drafter = own if has_drafter else NoDrafter()
            started = time.perf_counter()
            engine.step()
            seconds[has_drafter].append(time.perf_counter() - started)
    engine._drafter = own
    while engine.has_work:
        engine.step()
    return {has: len(prompts) / statistics.median(taken) for has, taken in seconds.items()}


def _cells(rates: Rates) -> list[dict[str, Any]]:
    return [
        {
            "batch_size": batch_size,
            "drafter": kind,
            "tokens_per_second": asdict(Spread.of([own for own, _ in pairs])),
            "without_drafter": asdict(Spread.of([none for _, none in pairs])),
            "ratio": asdict(Spread.of([own / none for own, none in pairs])),
        }
        for (batch_size, kind), pairs in rates.items()
    ]


def _print_table(console: Console, cells: list[dict[str, Any]], dtype: str) -> None:
    table = Table(title=f"draft length 0, {dtype}: median (min to max)")
    for column in ("batch", "drafter", "tokens/s", "without", "x no drafter"):
        table.add_column(column, justify="right")
    for cell in cells:
        table.add_row(
            str(cell["batch_size"]),
            cell["drafter"],
            str(Spread(**cell["tokens_per_second"])),
            str(Spread(**cell["without_drafter"])),
            str(Spread(**cell["ratio"])),
        )
    console.print(table)


if __name__ == "__main__":
    main()
