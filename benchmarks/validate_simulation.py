"""Is a simulation like what it simulates? A real engine answers requests that arrive at random; the
same arrivals are then simulated with what the engine's own calibration and drafts say.

Time is the CPU time of this process, on one thread, and idle time is skipped: so what else the
machine does counts for little. `--json` keeps everything the comparison needs: the test of the
simulation is one on such a file.
"""

import argparse
import json
import random
import statistics
import time
from collections import deque
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.progress import measuring
from benchmarks.prompts import DEFAULT_PROMPTS, chat_prompts, first_turns
from deployments.bench.results import Goal, print_goals, write_json
from deployments.models.cache import default_home
from deployments.models.store import resolve_model
from deployments.simulate.validation import MOST_MEAN, MOST_P95, compare
from engine.build import build_engine
from engine.calibrate.grid import Grid
from engine.calibrate.measure import calibrate
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.model import load_tokenizer
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs

MAX_NUM_SEQS, MAX_DRAFT_LEN, NUM_BLOCKS, MAX_MODEL_LEN = 16, 4, 512, 512
GRID = Grid((1, 2, 4, 8, MAX_NUM_SEQS), (0, 1, 2, MAX_DRAFT_LEN), (64, 256))
PROMPTS = (16, 32, 64, 96, 160)
FIXED = (0, 2)
CV = 1.5


class Clock:
    """CPU seconds of this process, and those that were skipped."""

    def __init__(self) -> None:
        self._skipped_s = 0.0

    def __call__(self) -> float:
        return time.process_time() + self._skipped_s

    def skip_to(self, at_s: float) -> None:
        self._skipped_s += max(0.0, at_s - self())


def record(
    engine: Engine, prompts: list[list[int]], count: int, interval_s: float, draft_len: int
) -> dict[str, Any]:
    """Open-loop arrivals with Gamma intervals, answered at one draft length: times in seconds from
    the start."""
    draw = random.Random(0)
    at_s, arrivals, due = 0.0, [], deque[tuple[float, Request]]()
    for number in range(count):
        at_s += draw.gammavariate(1 / CV**2, interval_s * CV**2)
        # None begins as another does, in this run or another: none finds another's KV.
        prompt = [10 + number + (draft_len + 1) * count, *prompts[number % len(prompts)]][
            : draw.randint(30, 160)
        ]
        sampling = SamplingParams(max_tokens=draw.randint(12, 48), temperature=0.0, ignore_eos=True)
        request = Request(f"{draft_len} {number}", tuple(prompt), sampling)
        due.append((at_s, request))
        arrivals.append([at_s, len(prompt), sampling.max_tokens])
    engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))
    numbers = {request.request_id: number for number, (_, request) in enumerate(due)}
    first_s, end_s = [0.0] * count, [0.0] * count
    kept, tried = [0] * count, [0] * count
    clock = Clock()
    began = clock()
    while due or engine.has_work:
        if not engine.has_work:
            clock.skip_to(began + due[0][0])
        while due and began + due[0][0] <= clock():
            engine.add(due.popleft()[1])
        deltas = engine.step()
        now = clock() - began
        for delta in deltas:
            number = numbers[delta.request_id]
            first_s[number] = first_s[number] or now
            kept[number] += delta.num_accepted
            tried[number] += min(delta.num_drafted, delta.num_accepted + 1)
            if delta.finish_reason is not None:
                end_s[number] = now
    return {
        "draft_len": draft_len,
        "arrivals": arrivals,
        "first_s": first_s,
        "end_s": end_s,
        # Of a draft token whose forerunners were kept, by request: they differ a good deal.
        "acceptance": [k / max(1, t) for k, t in zip(kept, tried, strict=True)],
    }


def measured(engine: Engine, max_seconds: float, number: int) -> dict[str, Any]:
    """A calibration, and lone prompts."""
    found = calibrate(engine, GRID, max_seconds=max_seconds, clock=time.process_time)
    return {"calibration": found.as_json(), "prompts": prompt_seconds(engine, number)}


def mean_of(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Of what was measured before the runs and after them: a machine's pace drifts."""
    cells: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for cell in (*before["calibration"]["cells"], *after["calibration"]["cells"]):
        place = cell["batch_size"], cell["draft_len"], cell["context"]
        cells.setdefault(place, []).append(cell)
    means = [
        {
            **found[0],
            **{
                name: statistics.mean(cell[name] for cell in found)
                for name in ("target_seconds", "draft_seconds")
            },
        }
        for found in cells.values()
    ]
    prompts = {
        length: (seconds + after["prompts"][length]) / 2
        for length, seconds in before["prompts"].items()
    }
    return {"calibration": {"cells": means}, "prompts": prompts}


def prompt_seconds(engine: Engine, number: int) -> dict[str, float]:
    """Until the first token of a lone prompt, by its tokens: medians of turns."""
    seconds: dict[int, list[float]] = {length: [] for length in PROMPTS}
    for turn in range(7 * number, 7 * number + 7):
        for length in PROMPTS:
            prompt = (5000 + turn * max(PROMPTS) + length, *range(3, 2 + length))
            sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
            engine.add(Request(f"prompt {turn} {length}", prompt, sampling))
            started = time.process_time()
            while engine.has_work:
                engine.step()
            seconds[length].append(time.process_time() - started)
    return {str(length): statistics.median(found) for length, found in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="keep the record here")
    parser.add_argument("--model", default="smollm2-135m", help="an embedded model or a folder")
    parser.add_argument("--prompts", type=Path, default=DEFAULT_PROMPTS)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--interval", type=float, default=0.6, help="seconds between them")
    parser.add_argument("--calibrate", type=float, default=60.0, help="seconds that it may take")
    parser.add_argument("--eager", action="store_true", help="do not compile the forward")
    args = parser.parse_args()
    console = Console()
    model = resolve_model(args.model)
    config = EngineConfig(
        model,
        DrafterConfig(kind="model", model=model / "draft"),
        max_num_seqs=MAX_NUM_SEQS,
        max_draft_len=MAX_DRAFT_LEN,
        num_blocks=NUM_BLOCKS,
        max_model_len=MAX_MODEL_LEN,
        num_threads=1,
        compile_folder=None if args.eager else default_home() / "compiled",
    )
    engine = build_engine(config, SpeculationTable(0, ()), lambda stage: console.print(stage))
    prompts = chat_prompts(first_turns(args.prompts / "mt_bench_80.jsonl"), load_tokenizer(model))
    document: dict[str, Any] = {
        "benchmark": "validate_simulation",
        "model": args.model,
        "dtype": config.dtype,
        "max_num_seqs": MAX_NUM_SEQS,
        "max_draft_len": MAX_DRAFT_LEN,
        "num_blocks": NUM_BLOCKS,
        "runs": [],
    }
    with measuring(console, 2 + len(FIXED)) as begin:
        begin("calibrating")
        before = measured(engine, args.calibrate, 0)
        for draft_len in FIXED:
            begin(f"length {draft_len}")
            run = record(engine, prompts, args.requests, args.interval, draft_len)
            document["runs"].append(run)
        begin("calibrating again")
        document.update(mean_of(before, measured(engine, args.calibrate, 1)))
    engine.close()
    table = Table(title="latency, simulated / measured")
    for column in ("length", "measured mean, s", "mean", "p95", "TTFT mean"):
        table.add_column(column)
    goals = []
    for run in document["runs"]:
        told = compare(document, run)
        table.add_row(
            str(run["draft_len"]),
            f"{told.measured_mean_s:.3g}",
            f"{told.mean:.3f}",
            f"{told.p95:.3f}",
            f"{told.ttft_mean:.3f}",
        )
        for name, ratio, most in (("mean", told.mean, MOST_MEAN), ("p95", told.p95, MOST_P95)):
            goal = f"within {most:.0%}"
            goals.append(
                Goal(f"length {run['draft_len']}: {name}", goal, ratio, abs(ratio - 1) <= most)
            )
    console.print(table)
    print_goals(console, goals)
    if args.json is not None:
        write_json(args.json, json.loads(json.dumps(document)), goals)


if __name__ == "__main__":
    main()
