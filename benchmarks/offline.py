"""Tokens per second of the engine, by batch size and draft length, beside transformers.generate.

Everything in one process and one run, interleaved: each repeat measures transformers and every
draft length once, so that a slow minute of the machine hits all alike. Ratios are of medians.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from benchmarks.options import Options, parser
from benchmarks.prompts import DEFAULT_PROMPTS, chat_prompts, first_turns
from deployments.bench.results import Goal, Spread, print_goals, write_json
from deployments.bench.settle import settle
from deployments.models.store import resolve_model
from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.kernels.linear import has_bfloat16
from engine.model import DTYPES, load_tokenizer
from engine.request import Request, SamplingParams
from policy.stats import StatsWindow
from policy.table import SpeculationTable, fixed_rungs

NEW_TOKENS = 64
FIRST_MARK = 1000
PEER = "transformers"


def main() -> None:
    args = _arguments()
    console = Console()
    batch_sizes = (1, 4) if args.quick else (1, 4, 16)
    lengths = (0, 2, 4) if args.quick else (0, 1, 2, 4, 8)
    repeats = 1 if args.quick else args.repeats
    folder = resolve_model(args.model)
    tokenizer = load_tokenizer(folder)
    prompts = chat_prompts(first_turns(args.prompts, max(batch_sizes)), tokenizer)
    drafter = (
        DrafterConfig(kind="model", model=args.draft) if args.draft else DrafterConfig(kind="ngram")
    )
    config = EngineConfig(
        model=folder, drafter=drafter, dtype=args.dtype, compile_folder=args.compile_folder
    )
    engine = build_engine(config, SpeculationTable(0, ()))
    settle()
    dtype = DTYPES[config.dtype]
    if not has_bfloat16(torch.device("cpu")):
        dtype = torch.float32  # faster for transformers too
    peer = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    peer.generation_config.eos_token_id = None  # both go on to NEW_TOKENS

    seconds: dict[tuple[int, str], list[float]] = {}
    windows: dict[tuple[int, str], StatsWindow] = {}
    total = len(batch_sizes) * (repeats + 1) * (len(lengths) + 1)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.fields[now]:<24}"), *columns, console=console) as progress:
        task = progress.add_task("measuring", total=total, now="")
        try:
            for batch_size in batch_sizes:
                batch = prompts[:batch_size]
                for repeat in range(-1, repeats):  # the first round warms up
                    for name, measure in _contenders(engine, peer, tokenizer, batch, lengths):
                        progress.update(task, now=f"batch {batch_size}, {name}")
                        elapsed, window = measure()
                        progress.advance(task)
                        if repeat >= 0:
                            seconds.setdefault((batch_size, name), []).append(elapsed)
                            windows[batch_size, name] = window
        except KeyboardInterrupt:
            console.print("stopped; what was measured so far follows")

    cells = _cells(seconds, windows)
    _print_table(console, cells, args.dtype, drafter.kind)
    goals = _goals(cells)
    print_goals(console, goals)
    if args.json is not None:
        results = {
            "benchmark": "offline",
            "model": args.model,
            "dtype": args.dtype,
            "drafter": drafter.kind,
            "new_tokens": NEW_TOKENS,
            "repeats": repeats,
            "cells": cells,
        }
        write_json(args.json, results, goals)


Measured = Callable[[], tuple[float, StatsWindow]]


def _contenders(
    engine: Engine,
    peer: Any,
    tokenizer: PreTrainedTokenizerFast,
    batch: list[list[int]],
    lengths: tuple[int, ...],
) -> list[tuple[str, Measured]]:
    def of_length(draft_len: int) -> Measured:
        return lambda: _run_engine(engine, batch, draft_len)

    ours: list[tuple[str, Measured]] = [(f"length {n}", of_length(n)) for n in lengths]
    return [(PEER, lambda: _run_peer(peer, tokenizer, batch)), *ours]


def _run_engine(
    engine: Engine, batch: list[list[int]], draft_len: int
) -> tuple[float, StatsWindow]:
    """Seconds for NEW_TOKENS greedy tokens of each prompt, prefill included."""
    engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))
    engine.drain_stats()
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    started = time.perf_counter()
    # A first token of its own for each measurement: our prefix cache would answer for the prefill.
    mark = FIRST_MARK + engine.table.version
    for index, prompt in enumerate(batch):
        engine.add(Request(str(index), (mark, *prompt), sampling))
    while engine.has_work:
        engine.step()
    elapsed = time.perf_counter() - started
    window = engine.drain_stats()
    assert window.emitted_tokens == NEW_TOKENS * len(batch)
    return elapsed, window


def _run_peer(
    peer: Any, tokenizer: PreTrainedTokenizerFast, batch: list[list[int]]
) -> tuple[float, StatsWindow]:
    """The same work by transformers: one padded batch, EOS ignored."""
    longest = max(map(len, batch))
    pad = tokenizer.pad_token_id or 0
    ids = torch.tensor([[pad] * (longest - len(p)) + p for p in batch])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in batch])
    started = time.perf_counter()
    with torch.inference_mode():
        output = peer.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=pad,
        )
    elapsed = time.perf_counter() - started
    assert output.shape[1] == longest + NEW_TOKENS
    return elapsed, StatsWindow()


def _cells(
    seconds: dict[tuple[int, str], list[float]], windows: dict[tuple[int, str], StatsWindow]
) -> list[dict[str, Any]]:
    cells = []
    for (batch_size, name), values in seconds.items():
        rates = [NEW_TOKENS * batch_size / value for value in values]
        peer = seconds[batch_size, PEER]
        window = windows[batch_size, name]
        drafted = window.drafted_tokens
        ratios = [theirs / ours for theirs, ours in zip(peer, values, strict=False)]
        cells.append(
            {
                "batch_size": batch_size,
                "contender": name,
                "tokens_per_second": asdict(Spread.of(rates)),
                "ratio_to_transformers": asdict(Spread.of(ratios)),
                "accepted_share": window.accepted_tokens / drafted if drafted else None,
                "tokens_per_round": window.emitted_tokens / window.rounds
                if window.rounds
                else None,
            }
        )
    return cells


def _print_table(console: Console, cells: list[dict[str, Any]], dtype: str, drafter: str) -> None:
    table = Table(title=f"tokens/s, {dtype}, drafter {drafter}: median (min to max)")
    for column in ("batch", "contender", "tokens/s", "x transformers", "accepted", "tokens/round"):
        table.add_column(column, justify="right")
    for cell in cells:
        accepted, per_round = cell["accepted_share"], cell["tokens_per_round"]
        table.add_row(
            str(cell["batch_size"]),
            cell["contender"],
            str(Spread(**cell["tokens_per_second"])),
            str(Spread(**cell["ratio_to_transformers"])),
            "" if accepted is None else f"{accepted:.0%}",
            "" if per_round is None else f"{per_round:.2f}",
        )
    console.print(table)


def _goals(cells: list[dict[str, Any]]) -> list[Goal]:
    ratios = {
        (cell["batch_size"], cell["contender"]): cell["ratio_to_transformers"]["median"]
        for cell in cells
    }
    return [
        Goal(
            f"length 0 against transformers, tokens/s at batch {batch_size}",
            f">= {least}",
            ratio,
            ratio >= least,
        )
        for batch_size, least in ((1, 1.0), (16, 1.5))
        if (ratio := ratios.get((batch_size, "length 0"))) is not None
    ]


class OfflineOptions(Options):
    draft: Path | None
    prompts: Path


def _arguments() -> OfflineOptions:
    arguments = parser(__doc__)
    arguments.add_argument("--draft", type=Path, help="folder of a draft model (default: n-grams)")
    arguments.add_argument(
        "--prompts",
        type=Path,
        default=DEFAULT_PROMPTS / "mt_bench_80.jsonl",
        help="JSONL with `turns`; the first turn of each line is used",
    )
    args = arguments.parse_args(namespace=OfflineOptions())
    if not args.prompts.is_file():
        arguments.error(
            f"--prompts: there is no file {args.prompts}; name a JSONL file with `turns`"
        )
    return args


if __name__ == "__main__":
    main()
