"""Tokens/s, time to first token and memory of the engine beside OpenVINO GenAI, vLLM and
transformers, with the same weights and prompts on this CPU.

All are loaded once, then measured in turns, repeat by repeat: a slow minute of the machine hits all
alike, and ratios are taken within a repeat. Whoever is not measured is stopped.
"""

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.drafts import HELP, OWN, drafter_values
from benchmarks.peers.contenders import OURS, PEERS, Contender, contenders
from benchmarks.peers.goals import judge
from benchmarks.peers.launch import Crew, Setting, load_workers
from benchmarks.peers.measuring import Results, Task, measure, num_measurements, tasks_of
from benchmarks.peers.tables import json_cells, print_missing, print_results
from benchmarks.peers.workloads import FIRST_TOKEN, workloads
from benchmarks.prompts import DEFAULT_PROMPTS
from deployments.bench.results import print_goals, write_json
from deployments.config import parse_config
from deployments.models.cache import default_home
from deployments.models.catalog import EMBEDDED
from deployments.models.store import resolve_model
from engine.model import load_tokenizer

NEW_TOKENS, QUICK_TOKENS = 64, 16


def main() -> None:
    args = _arguments()
    console = Console()
    batch_sizes = (1, 4) if args.quick else (1, 4, 16)
    repeats = 1 if args.quick else args.repeats
    model_folder = resolve_model(args.model)
    values = {"model": args.model, "drafter": drafter_values(args.draft)}
    values["engine"] = {"dtype": "bfloat16"}
    draft = parse_config(values, "options").engine_config().drafter.model
    who = contenders(args.peers, draft=draft is not None, quick=args.quick)
    tasks = tasks_of(
        workloads(args.prompts, load_tokenizer(model_folder)),
        batch_sizes,
        QUICK_TOKENS if args.quick else NEW_TOKENS,
        who,
        FIRST_TOKEN,
    )
    args.folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(EMBEDDED[args.model], model_folder, draft, args.folder, values, args.quick)
    crew, results = Crew(), Results()
    try:
        load_workers(crew, who, setting, console)
        _measure(console, tasks, crew, repeats, results)
    except KeyboardInterrupt:
        console.print("stopped; what was measured so far follows")
    finally:
        crew.end()

    print_results(console, results, batch_sizes)
    facts = crew.facts.get(f"{OURS}-engine")
    goals, missing = judge(
        results, None if facts is None else facts["weights_bytes"] + facts["kv_cache_bytes"]
    )
    print_goals(console, goals)
    print_missing(console, missing)
    if args.json is not None:
        document = {
            "benchmark": "peers",
            "model": args.model,
            "draft": args.draft,
            "repeats": repeats,
            "quick": args.quick,
            "peers": crew.facts,
            "cells": json_cells(results),
            "largest_rss_bytes": results.largest_rss_bytes,
            "failed": [asdict(goal) for goal in missing],
        }
        write_json(args.json, document, goals)


def _measure(
    console: Console, tasks: list[Task], crew: Crew, repeats: int, results: Results
) -> None:
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.fields[now]:<48}"), *columns, console=console) as progress:
        bar = progress.add_task("measuring", total=num_measurements(tasks, repeats), now="")

        def report(task: Task, contender: Contender) -> None:
            now = f"{task.workload.name}, batch {task.batch_size}, {contender.name}"
            progress.update(bar, advance=1, now=now)

        measure(tasks, crew.workers, crew.unavailable, repeats, results, report)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--quick", action="store_true", help="less of everything: a smoke test")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--peers",
        type=lambda names: tuple(names.split(",")),
        default=PEERS,
        help=f"some of {','.join(PEERS)}",
    )
    parser.add_argument("--model", choices=[*EMBEDDED], default="smollm2-135m")
    parser.add_argument("--draft", default=OWN, help=HELP)
    parser.add_argument(
        "--folder",
        type=Path,
        default=default_home() / "peers",
        help="the peers' virtual environments, weights and logs",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        default=DEFAULT_PROMPTS,
        help="folder with mt_bench_80.jsonl and gsm8k_80.jsonl",
    )
    args = parser.parse_args()
    for name in args.peers:
        if name not in PEERS:
            parser.error(f"--peers: {name!r} is none of {', '.join(PEERS)}")
    for name in ("mt_bench_80.jsonl", "gsm8k_80.jsonl"):
        if not (args.prompts / name).is_file():
            parser.error(f"--prompts: there is no file {args.prompts / name}")
    if args.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {args.repeats}")
    args.folder = args.folder.expanduser().absolute()
    return args


if __name__ == "__main__":
    main()
