"""What sampling, verification, grammars and the prefix cache cost, as shares of the engine's step.

16 sequences, drafts of 4 tokens. The drafter is an oracle: it replays what the same requests gave
without drafts, so every draft is kept and every one of the 80 places of a step is chosen at: the
most that verification can cost. The kinds of requests are interleaved; a share is of the time of
the whole step, in the same run.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.options import Options, parser
from benchmarks.prompts import DEFAULT_PROMPTS, chat_prompts, first_turns
from deployments.bench.results import Goal, Spread, print_goals, write_json
from deployments.bench.settle import settle
from deployments.models.store import resolve_model
from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.model import load_tokenizer
from engine.plan import Draft, SeqSlice
from engine.request import GrammarSpec, Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs

BATCH_SIZE = 16
DRAFT_LEN = 4
NEW_TOKENS = 61  # the first token, and twelve rounds of five
QUICK_TOKENS = 21
PROMPT_TOKENS = 1000
SCHEMA = """{"type": "object", "properties": {
 "title": {"type": "string"}, "rating": {"type": "integer"},
 "tags": {"type": "array", "items": {"type": "string"}},
 "author": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
 "required": ["title", "rating", "tags", "author"], "additionalProperties": false}"""
PLAIN = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.8, top_p=0.95, ignore_eos=True)
KINDS: dict[str, SamplingParams] = {
    "greedy": replace(PLAIN, temperature=0.0, top_p=1.0),
    "temperature 1": replace(PLAIN, temperature=1.0, top_p=1.0),
    "temperature 0.8, top_p 0.95": PLAIN,
    "temperature 0.8, top_k 50, min_p 0.02": replace(PLAIN, top_p=1.0, top_k=50, min_p=0.02),
    "the same and penalties": replace(PLAIN, presence_penalty=0.5, repetition_penalty=1.1),
    "the same and 5 logprobs": replace(PLAIN, logprobs=5),
    "JSON object": replace(PLAIN, ignore_eos=False, grammar=GrammarSpec("json_object")),
    "JSON schema": replace(PLAIN, ignore_eos=False, grammar=GrammarSpec("json_schema", SCHEMA)),
}
GRAMMARS = ("JSON object", "JSON schema")
PENALISED, LOGPROBS = "the same and penalties", "the same and 5 logprobs"


class Oracle:
    """Drafts what is known to come."""

    def __init__(self) -> None:
        self.texts: dict[str, list[int]] = {}
        """All tokens of each request, prompt included."""

    def propose(self, slices: Sequence[SeqSlice]) -> list[Draft]:
        return [
            Draft(tuple(self.texts.get(p.request_id, ())[p.end : p.end + p.draft_len]))
            for p in slices
        ]


def main() -> None:
    args = _arguments()
    console = Console()
    repeats = 1 if args.quick else args.repeats
    folder = resolve_model(args.model)
    tokenizer = load_tokenizer(folder)
    prompts = chat_prompts(first_turns(args.prompts, BATCH_SIZE), tokenizer)
    oracle = Oracle()
    config = EngineConfig(
        model=folder,
        drafter=DrafterConfig(kind="none"),
        dtype=args.dtype,
        compile_folder=args.compile_folder,
    )
    engine = build_engine(config, SpeculationTable(0, ()), drafter=oracle)
    settle()

    shares: dict[str, list[dict[str, float]]] = {}
    first_tokens: dict[str, list[float]] = {"cold": [], "repeated": []}
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.fields[now]:<40}"), *columns, console=console) as progress:
        task = progress.add_task(
            "measuring", total=(repeats + (not args.quick)) * (len(KINDS) + 1), now=""
        )
        try:
            for repeat in range(0 if args.quick else -1, repeats):  # the first round warms up
                for kind, sampling in KINDS.items():
                    progress.update(task, now=kind)
                    wanted = replace(
                        sampling, max_tokens=QUICK_TOKENS if args.quick else NEW_TOKENS
                    )
                    measured = _measure(engine, oracle, prompts, wanted)
                    progress.advance(task)
                    if repeat >= 0:
                        shares.setdefault(kind, []).append(measured)
                progress.update(task, now="prefix cache")
                cold, repeated = _first_token_seconds(engine, prompts[0], repeat + 1)
                progress.advance(task)
                if repeat >= 0:
                    first_tokens["cold"].append(cold)
                    first_tokens["repeated"].append(repeated)
        except KeyboardInterrupt:
            console.print("stopped; what was measured so far follows")
    if not first_tokens["repeated"]:
        console.print("nothing was measured")
        return
    cells = _cells(shares)
    _print_table(console, cells, first_tokens, args.dtype)
    goals = _goals(cells, first_tokens)
    print_goals(console, goals)
    if args.json is not None:
        results = {
            "benchmark": "sampling",
            "model": args.model,
            "dtype": args.dtype,
            "compiled": args.compile_folder is not None,
            "batch_size": BATCH_SIZE,
            "draft_len": DRAFT_LEN,
            "repeats": repeats,
            "cells": cells,
            "first_token_seconds": {k: asdict(Spread.of(v)) for k, v in first_tokens.items()},
        }
        write_json(args.json, results, goals)


def _measure(
    engine: Engine, oracle: Oracle, prompts: list[list[int]], sampling: SamplingParams
) -> dict[str, float]:
    """Seconds of a median step among those that verify the most drafts, and shares of it."""
    requests = [
        Request(str(i), tuple(prompt), replace(sampling, seed=i))
        for i, prompt in enumerate(prompts)
    ]
    oracle.texts = {}
    oracle.texts = _run(engine, requests, 0)[0]
    texts, steps = _run(engine, requests, DRAFT_LEN)
    assert texts == oracle.texts, "a draft changed the output"
    # Answers under a grammar end one by one, and the first may before the last prompt is computed.
    most = max(step["drafted"] for step in steps)
    full = [step for step in steps if step["drafted"] >= 0.9 * most]
    measured: dict[str, float] = {"full_steps": len(full)}
    for name in ("drafted", "step_seconds", "verify_share", "draft_share"):
        measured[name] = statistics.median(step[name] for step in full)
    return measured


def _run(
    engine: Engine, requests: list[Request], draft_len: int
) -> tuple[dict[str, list[int]], list[dict[str, float]]]:
    """Texts of all requests, and what each step took."""
    engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))
    engine.add(*requests)
    engine.drain_stats()
    texts = {request.request_id: list(request.prompt_token_ids) for request in requests}
    steps: list[dict[str, float]] = []
    while engine.has_work:
        started = time.perf_counter()
        deltas = engine.step()
        elapsed = time.perf_counter() - started
        window = engine.drain_stats()
        steps.append(
            {
                "drafted": window.drafted_tokens,
                "step_seconds": elapsed,
                "verify_share": window.verify_seconds / elapsed,
                # The oracle's own look-up, and cutting drafts to the grammar.
                "draft_share": window.draft_seconds / elapsed,
            }
        )
        for delta in deltas:
            texts[delta.request_id] += delta.token_ids
    return texts, steps


def _first_token_seconds(engine: Engine, prompt: list[int], salt: int) -> tuple[float, float]:
    """Of a prompt that was never seen, and of the same again."""
    # The first token differs from all before, so no block of the text is known.
    text = (prompt * (PROMPT_TOKENS // len(prompt) + 1))[: PROMPT_TOKENS - 1]
    request = Request("p", (1000 + salt, *text), SamplingParams(max_tokens=1, temperature=0.0))
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        engine.add(request)
        while engine.has_work:
            engine.step()
        seconds.append(time.perf_counter() - started)
    return seconds[0], seconds[1]


def _cells(shares: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, Any]]:
    return {
        kind: {name: asdict(Spread.of([run[name] for run in runs])) for name in runs[0]}
        for kind, runs in shares.items()
    }


def _goals(cells: dict[str, dict[str, Any]], first_tokens: dict[str, list[float]]) -> list[Goal]:
    goals = []

    def share(name: str, kind: str, most: float, parts: tuple[str, ...]) -> None:
        if kind in cells:
            measured = sum(cells[kind][part]["median"] for part in parts)
            goals.append(Goal(name, f"<= {most:.0%} of the step", measured, measured <= most))

    share("sampling and verification", "temperature 0.8, top_p 0.95", 0.05, ("verify_share",))
    for kind in GRAMMARS:
        # The masks' own share is less: sampling and verification are in it as well.
        share(f"with masks of a {kind}", kind, 0.10, ("verify_share", "draft_share"))
    ratio = statistics.median(first_tokens["repeated"]) / statistics.median(first_tokens["cold"])
    goals.append(
        Goal(
            f"first token of a repeated prompt of {PROMPT_TOKENS} tokens",
            "<= 15% of the cold one's time",
            ratio,
            ratio <= 0.15,
        )
    )
    return goals


def _print_table(
    console: Console,
    cells: dict[str, dict[str, Any]],
    first_tokens: dict[str, list[float]],
    dtype: str,
) -> None:
    table = Table(title=f"{BATCH_SIZE} sequences, drafts of {DRAFT_LEN}, {dtype}: medians")
    for column in ("requests", "drafted", "step, ms", "sampling and verification", "drafts"):
        table.add_column(column)
    for kind, cell in cells.items():
        table.add_row(
            kind,
            f"{cell['drafted']['median']:.0f}",
            f"{1e3 * cell['step_seconds']['median']:.0f}",
            f"{cell['verify_share']['median']:.1%}",
            f"{cell['draft_share']['median']:.1%}",
        )
    console.print(table)
    for name, seconds in first_tokens.items():
        console.print(f"first token, {name} prompt: {Spread.of(seconds)} s")


class SamplingOptions(Options):
    prompts: Path


def _arguments() -> SamplingOptions:
    arguments = parser(__doc__)
    arguments.add_argument("--prompts", type=Path, default=DEFAULT_PROMPTS / "mt_bench_80.jsonl")
    return arguments.parse_args(namespace=SamplingOptions())


if __name__ == "__main__":
    main()
