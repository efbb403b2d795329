"""How well a calibration says what rounds of real requests cost, and how far calibrations differ.

One engine is calibrated again and again; between, it decodes chat at fixed draft lengths, a model's
drafts alone, so that each sequence has a draft of the length. What is compared is the cost of a
length over that of length 0 at the same batch size: this is what the policy decides by, as traffic
tells it soon how far all lengths are off together. Real steps of one length are those of all turns,
as in service, where a calibration is made once and traffic comes at any time.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.adaptation import put_in_force
from benchmarks.drafts import OWN, drafter_values
from benchmarks.options import Options, parser
from benchmarks.peers.workloads import CHAT, workloads
from benchmarks.progress import measuring
from benchmarks.prompts import DEFAULT_PROMPTS
from deployments.bench.results import Spread, write_json
from deployments.bench.settle import settle
from deployments.config import parse_config
from engine.build import build_engine
from engine.calibrate.grid import default_grid
from engine.calibrate.measure import calibrate
from engine.core import Engine
from engine.drafters.cascade import CascadeDrafter
from engine.model import load_tokenizer
from engine.request import Request, SamplingParams
from policy.cost import Calibration, CostModel
from policy.table import SpeculationTable, fixed_rungs

BATCH_SIZES = (1, 2, 4, 8, 16)
LENGTHS = (0, 1, 2, 4)
TURN_S = 1.5
NEW_TOKENS = 160
Steps = dict[tuple[int, int], list[float]]
"""Seconds of a round by batch size and length: the mean of each turn."""


class CalibrationOptions(Options):
    prompts: Path


def main() -> None:
    """Measure, print, write."""
    options = parser(__doc__, repeats=4)
    options.add_argument("--prompts", type=Path, default=DEFAULT_PROMPTS)
    args = options.parse_args(namespace=CalibrationOptions())
    console = Console()
    values = {
        "model": args.model,
        "drafter": drafter_values(OWN),
        "engine": {"dtype": args.dtype, "compile": not args.eager, "max_num_seqs": 32},
    }
    config = parse_config(values, "options").engine_config()
    tokenizer = load_tokenizer(config.model)
    chats = next(work for work in workloads(args.prompts, tokenizer) if work.name == CHAT)
    engine = build_engine(config, SpeculationTable(0, ()), lambda stage: console.print(stage))
    if isinstance(engine._drafter, CascadeDrafter):
        engine._drafter = engine._drafter.model
    grid = default_grid(config, engine.max_model_len)
    sizes = (1, 4) if args.quick else BATCH_SIZES
    settle()
    found: list[Calibration] = []
    seconds: list[float] = []
    steps: Steps = defaultdict(list)
    with measuring(console, (1 if args.quick else args.repeats) * (1 + len(sizes))) as begin:
        for _ in range(1 if args.quick else args.repeats):
            begin("calibrating")
            started = time.perf_counter()
            calibration = calibrate(engine, grid)
            seconds.append(time.perf_counter() - started)
            found.append(calibration)
            for size in sizes:
                begin(f"decoding, batch {size}")
                for length in LENGTHS:
                    steps[size, length].append(_decode(engine, chats.prompts, size, length))
    cells = [_cell(found, steps, size, length) for size in sizes for length in LENGTHS[1:]]
    table = Table(title="cost of a round over that of length 0")
    for column in ("batch", "length", "real", "calibrated", "off by"):
        table.add_column(column, justify="right")
    for cell in cells:
        shown = [str(cell["batch_size"]), str(cell["draft_len"])]
        shown += [str(Spread(**cell[name])) for name in ("real", "calibrated")]
        table.add_row(*shown, f"{cell['off_by']:.1%}")
    console.print(table)
    off_by = statistics.mean(cell["off_by"] for cell in cells)
    console.print(f"mean {off_by:.1%}; a calibration takes {Spread.of(seconds)} s")
    if args.json is not None:
        results: dict[str, Any] = {
            "benchmark": "calibration",
            "model": args.model,
            "dtype": args.dtype,
            "calibration_seconds": seconds,
            "mean_off_by": off_by,
            "cells": cells,
            "calibrations": [one.as_json() for one in found],
        }
        write_json(args.json, results, [])


def _cell(found: list[Calibration], steps: Steps, size: int, length: int) -> dict[str, Any]:
    real = Spread.of(
        [mine / none for mine, none in zip(steps[size, length], steps[size, 0], strict=True)]
    )
    calibrated = []
    for calibration in found:
        cost = CostModel(calibration).at(size, 200.0)
        calibrated.append((cost.target(length) + cost.draft(length)) / cost.target(0))
    return {
        "batch_size": size,
        "draft_len": length,
        "real": asdict(real),
        "calibrated": asdict(Spread.of(calibrated)),
        # Of one calibration, on average.
        "off_by": statistics.mean(abs(one / real.median - 1) for one in calibrated),
    }


def _decode(
    engine: Engine,
    prompts: tuple[tuple[int, ...], ...],
    size: int,
    length: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Mean seconds of a round in which all sequences have a draft of the length."""
    put_in_force(engine, SpeculationTable(0, fixed_rungs(length)))
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    for index in range(size):
        engine.add(Request(f"{index}", tuple(prompts[index]), sampling))
    while engine.status().num_decoding < size:
        engine.step()
    engine.drain_stats()
    until = clock() + TURN_S
    while clock() < until and engine.status().num_decoding == size:
        engine.step()
    window = engine.drain_stats()
    for index in range(size):
        engine.abort(f"{index}")
    engine.step()
    whole = [sums for shape, sums in window.shapes.items() if shape.num_drafted == size * length]
    return sum(sums.target_seconds + sums.draft_seconds for sums in whole) / sum(
        sums.steps for sums in whole
    )


if __name__ == "__main__":
    main()
