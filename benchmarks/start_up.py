"""How long `paceline serve` takes from its first breath to its first answer, stage by stage.

The first start finds the model alone: it compiles operators and forwards, and measures what rounds
cost. The others find what it left. Each stage is timed by when the server tells of it.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.progress import measuring
from benchmarks.service.served import START_S, StartFailed
from deployments.bench.results import Goal, Spread, print_goals, write_json
from deployments.models.cache import default_home
from deployments.models.store import resolve_model
from tests.serve.serve_process import ServeProcess

LONGEST_WARM_S = 25.0
POLL_S = 0.05
READY = "Ready after"


class Options(argparse.Namespace):
    json: Path | None
    quick: bool
    repeats: int
    model: str


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="one warm start")
    parser.add_argument("--repeats", type=int, default=5, help="warm starts")
    parser.add_argument("--model", default="smollm2-135m", help="an embedded model or a folder")
    args = parser.parse_args(namespace=Options())
    console = Console()
    resolve_model(args.model)
    repeats = 1 if args.quick else args.repeats
    starts = []
    with (
        tempfile.TemporaryDirectory() as home,
        _home(Path(home)),
        measuring(console, 1 + repeats) as begin,
    ):
        for number in range(1 + repeats):
            begin("the first start" if number == 0 else f"start {number + 1}")
            starts.append(_start(args.model))
        compiled_bytes = _size(Path(home) / "compiled")
    if len(starts) < 2:
        return  # stopped before there was anything to compare
    first, warm = starts[0], starts[1:]
    ready = Spread.of([start["ready_s"] for start in warm])
    answered = Spread.of([start["answered_s"] for start in warm])
    _print(console, first, warm)
    name = f"warm start to ready, s, median of {len(warm)}"
    goals = [Goal(name, f"<= {LONGEST_WARM_S:g}", ready.median, ready.median <= LONGEST_WARM_S)]
    print_goals(console, goals)
    if args.json is not None:
        results: dict[str, Any] = {
            "benchmark": "start_up",
            "model": args.model,
            "first": first,
            "warm": warm,
            "warm_ready_seconds": asdict(ready),
            "warm_answered_seconds": asdict(answered),
            "compiled_bytes": compiled_bytes,
            "model_bytes": _size(resolve_model(args.model)),
        }
        write_json(args.json, results, goals)


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """For processes started within: nothing is known there but the models."""
    (folder / "models").symlink_to(default_home() / "models")
    before = dict(os.environ)
    os.environ["PACELINE_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _start(model: str) -> dict[str, Any]:
    """One start with all defaults but the model: seconds to each stage told, ready, an answer.

    It ends once the policy has its costs, which it measures beside the first requests.
    Raises StartFailed.
    """
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        process = ServeProcess.start(Path(folder), {"model": model})
        stages: dict[str, float] = {}
        try:
            while READY not in stages:
                now = time.monotonic() - began
                for line in process.log.read_text().splitlines():
                    # "[  12 s] deploying": the time told has no decimals.
                    told = READY if line.startswith(READY) else line.partition("] ")[2]
                    stages.setdefault(told, now)
                if process.process.poll() is not None or now > START_S:
                    raise StartFailed(process.log.read_text()[-500:].strip())
                time.sleep(POLL_S)
            (served,) = httpx.get(f"{process.url}/v1/models").raise_for_status().json()["data"]
            body = {"model": served["id"], "prompt": "Once", "max_tokens": 1}
            httpx.post(f"{process.url}/v1/completions", json=body, timeout=60).raise_for_status()
            answered_s = time.monotonic() - began
            while httpx.get(f"{process.url}/policy").json()["table"]["source"] != "measured":
                if time.monotonic() - began > START_S:
                    raise StartFailed("nothing was measured")
                time.sleep(POLL_S)
            measured_s = time.monotonic() - began
        finally:
            process.kill()
    ready_s = stages.pop(READY)
    return {
        "stages_s": {stage: at_s for stage, at_s in stages.items() if stage},
        "ready_s": ready_s,
        "answered_s": answered_s,
        "costs_known_s": measured_s,
    }


def _size(folder: Path) -> int:
    """Bytes of all files in there."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _print(console: Console, first: dict[str, Any], warm: list[dict[str, Any]]) -> None:
    table = Table(title="seconds from the command on")
    for column in ("", "first", "warm"):
        table.add_column(column)
    for stage, at_s in first["stages_s"].items():
        found = [start["stages_s"][stage] for start in warm if stage in start["stages_s"]]
        table.add_row(stage, f"{at_s:.1f}", str(Spread.of(found)) if found else "")
    for name in ("ready_s", "answered_s", "costs_known_s"):
        spread = Spread.of([start[name] for start in warm])
        table.add_row(name, f"{first[name]:.1f}", str(spread))
    console.print(table)


if __name__ == "__main__":
    main()
