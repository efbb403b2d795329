"""What the draft that comes with a model gains: tokens/s by draft length against length 0.

One engine with a cascade of n-grams and the draft decodes the same prompts at every length, in
turns; prefill is included, and prompts differ from repeat to repeat. The share of a draft step is
of the target's step at one sequence, both as the engine counts them; acceptance is of the draft
model alone.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.options import Options, parser
from benchmarks.peers.workloads import CHAT, REWRITING, Workload, workloads
from benchmarks.progress import measuring
from benchmarks.prompts import DEFAULT_PROMPTS, chat_prompts, first_turns
from deployments.bench.results import Goal, Spread, print_goals, write_json
from deployments.bench.settle import settle
from deployments.models.store import resolve_model
from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.distill.shares import Share
from engine.drafters.cascade import CascadeDrafter
from engine.evaluate.decoding import Decoding
from engine.evaluate.draft import ACCEPTANCE_BATCH
from engine.model import load_tokenizer
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs

NEW_TOKENS = 64
ANSWER_TOKENS = 128
LEAST_GAIN = {CHAT: 1.15, REWRITING: 1.4}
LEAST_ACCEPTANCE = 0.42
MOST_OF_A_STEP = 0.08
_STEP_DRAFT_LEN = 4
Rates = dict[tuple[str, int, int], list[float]]
"""Tokens/s by workload, batch size and draft length, one for each repeat."""


class DraftOptions(Options):
    draft: Path | None
    prompts: Path


def main() -> None:
    """Measure, print, write."""
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument("--draft", type=Path, help="default: the one in the model's folder")
    arguments.add_argument("--prompts", type=Path, default=DEFAULT_PROMPTS)
    args = arguments.parse_args(namespace=DraftOptions())
    console = Console()
    batch_sizes = (1, 4) if args.quick else (1, 4, 16)
    lengths = (0, 2, 4) if args.quick else (0, 1, 2, 3, 4, 6, 8)
    repeats = 1 if args.quick else args.repeats
    folder = resolve_model(args.model)
    draft = args.draft or folder / "draft"
    engine = build_engine(
        EngineConfig(
            model=folder,
            drafter=DrafterConfig(kind="cascade", model=draft),
            dtype=args.dtype,
            compile_folder=args.compile_folder,
        ),
        SpeculationTable(0, ()),
        lambda stage: console.print(f"{stage} ...", markup=False),
    )
    tokenizer = load_tokenizer(folder)
    settle()

    rates: Rates = {}
    works = [w for w in workloads(args.prompts, tokenizer) if w.name in LEAST_GAIN]
    with measuring(console, len(works) * len(batch_sizes) * len(lengths) * (repeats + 1)) as begin:
        for work in works:
            for batch_size in batch_sizes:
                for repeat in range(repeats + 1):  # the first warms up
                    for length in lengths:
                        begin(f"{work.name}, batch {batch_size}, length {length}")
                        rate = _tokens_per_second(engine, work, batch_size, repeat, length)
                        if repeat:
                            rates.setdefault((work.name, batch_size, length), []).append(rate)
    questions = {
        name: chat_prompts(first_turns(args.prompts / file, 8 if args.quick else None), tokenizer)
        for name, file in (("MT-bench", "mt_bench_80.jsonl"), ("Alpaca", "alpaca_80.jsonl"))
    }
    # The draft model by itself: what a look-up would have known does not count as its own.
    assert isinstance(engine._drafter, CascadeDrafter)
    engine._drafter = engine._drafter.model
    with measuring(console, len(questions) + 1) as begin:
        accepted = {}
        for name, prompts in questions.items():
            begin(f"acceptance, {name}")
            accepted[name] = _acceptance(engine, prompts)
        begin("a draft step")
        share = _share_of_a_step(engine, questions["MT-bench"], 1 if args.quick else 9)

    cells = _cells(rates)
    _print(console, cells, accepted, args.dtype)
    goals = _goals(cells, accepted, share)
    print_goals(console, goals)
    if args.json is not None:
        results: dict[str, Any] = {
            "benchmark": "embedded_draft",
            "model": args.model,
            "draft": draft.name,
            "dtype": args.dtype,
            "new_tokens": NEW_TOKENS,
            "repeats": repeats,
            "cells": cells,
            "greedy_acceptance_at_position_1": {n: s.as_json() for n, s in accepted.items()},
            "draft_step_share": asdict(share),
        }
        write_json(args.json, results, goals)


def _tokens_per_second(
    engine: Engine, work: Workload, batch_size: int, repeat: int, length: int
) -> float:
    version = engine.table.version + 1
    engine.set_table(SpeculationTable(version, fixed_rungs(length)))
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    prompts = work.batch(batch_size, repeat, version)
    engine.add(*(Request(str(i), tuple(prompt), sampling) for i, prompt in enumerate(prompts)))
    started = time.perf_counter()
    while engine.has_work:
        engine.step()
    return NEW_TOKENS * batch_size / (time.perf_counter() - started)


def _acceptance(engine: Engine, prompts: Sequence[Sequence[int]]) -> Share:
    """Of the first drafted token, over the greedy answers."""
    decoding = Decoding(engine)
    right = tried = 0
    for first in range(0, len(prompts), ACCEPTANCE_BATCH):
        batch = prompts[first : first + ACCEPTANCE_BATCH]
        window = decoding.answer(batch, 1, ANSWER_TOKENS)
        right += window.accepted_by_position[0]
        tried += window.drafted_by_position[0]
    return Share(right, tried)


def _share_of_a_step(engine: Engine, prompts: Sequence[Sequence[int]], repeats: int) -> Spread:
    """A token of drafting over a step of the target without drafts, at one sequence."""
    decoding = Decoding(engine)
    shares = []
    for repeat in range(repeats):
        prompt = prompts[repeat % len(prompts)]
        plain = decoding.run([prompt], 0, NEW_TOKENS)
        drafted = decoding.run([prompt], _STEP_DRAFT_LEN, NEW_TOKENS)
        step = plain.window.target_seconds / plain.steps
        shares.append(drafted.window.draft_seconds / drafted.steps / _STEP_DRAFT_LEN / step)
    return Spread.of(shares)


def _cells(rates: Rates) -> list[dict[str, Any]]:
    return [
        {
            "workload": work,
            "batch_size": batch_size,
            "draft_len": length,
            "tokens_per_second": asdict(Spread.of(values)),
            "over_length_0": asdict(
                Spread.of([a / b for a, b in zip(values, rates[work, batch_size, 0], strict=False)])
            ),
        }
        for (work, batch_size, length), values in rates.items()
    ]


def _goals(
    cells: Sequence[dict[str, Any]], accepted: dict[str, Share], share: Spread
) -> list[Goal]:
    goals = []
    for work, least in LEAST_GAIN.items():
        gains = [
            cell["over_length_0"]["median"]
            for cell in cells
            if (cell["workload"], cell["batch_size"]) == (work, 1)
        ]
        if gains:
            name = f"best fixed length over length 0, {work}, batch 1"
            goals.append(Goal(name, f">= {least}", max(gains), max(gains) >= least))
    both = Share(
        sum(one.right for one in accepted.values()), sum(one.tried for one in accepted.values())
    )
    name = "greedy acceptance at position 1, held-out prompts"
    goals.append(Goal(name, f">= {LEAST_ACCEPTANCE}", both.value, both.value >= LEAST_ACCEPTANCE))
    name = "a draft step over the target's, batch 1"
    median = share.median
    goals.append(Goal(name, f"<= {MOST_OF_A_STEP}", median, median <= MOST_OF_A_STEP))
    return goals


def _print(
    console: Console, cells: Sequence[dict[str, Any]], accepted: dict[str, Share], dtype: str
) -> None:
    table = Table(title=f"tokens/s, {dtype}, cascade: median (min to max)")
    for column in ("workload", "batch", "length", "tokens/s", "x length 0"):
        table.add_column(column, justify="right")
    for cell in cells:
        table.add_row(
            cell["workload"],
            str(cell["batch_size"]),
            str(cell["draft_len"]),
            str(Spread(**cell["tokens_per_second"])),
            str(Spread(**cell["over_length_0"])),
        )
    console.print(table)
    for name, share in accepted.items():
        console.print(f"{name}: the draft model's first token was kept in {share}")


if __name__ == "__main__":
    main()
