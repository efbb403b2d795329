"""How near a decoding step of one sequence comes to the machine's memory, and what drafts cost it.

A step at batch 1 must read all weights, and hardly computes: bytes of weights and KV, in the dtype
asked for, over the read bandwidth measured in the same repeat, are the least it can take. Verifying
five tokens reads the same bytes, so it should take no longer than one. The drafter is an oracle:
every draft has four tokens, all are kept.
"""

import statistics
import time
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.options import Options, parser
from benchmarks.progress import measuring
from benchmarks.prompts import DEFAULT_PROMPTS, chat_prompts, first_turns
from benchmarks.roofline import model_cost, read_bandwidth
from benchmarks.sampling import Oracle
from deployments.bench.results import Goal, Spread, print_goals, write_json
from deployments.bench.settle import settle
from deployments.models.store import resolve_model
from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.model import DTYPES, load_tokenizer
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs

DRAFT_LEN = 4
NEW_TOKENS = 61  # the first token, and twelve rounds of five
CONTEXT = 136
"""Of the middle step."""
LEAST_SHARE = 0.5
LARGEST_RATIO = 1.15


def main() -> None:
    args = parser(__doc__, repeats=10).parse_args(namespace=Options())
    console = Console()
    repeats = 1 if args.quick else args.repeats
    folder = resolve_model(args.model)
    oracle = Oracle()
    config = EngineConfig(
        model=folder,
        drafter=DrafterConfig(kind="none"),
        dtype=args.dtype,
        compile_folder=args.compile_folder,
    )
    engine = build_engine(config, SpeculationTable(0, ()), drafter=oracle)
    settle()
    texts = first_turns(DEFAULT_PROMPTS / "mt_bench_80.jsonl", 8)
    tokens = [token for p in chat_prompts(texts, load_tokenizer(folder)) for token in p]
    prompt = tuple(tokens[: CONTEXT - NEW_TOKENS // 2])
    work = model_cost(folder).step([CONTEXT], 1, DTYPES[args.dtype].itemsize)

    bandwidths: list[float] = []
    seconds: dict[int, list[float]] = {1: [], 1 + DRAFT_LEN: []}
    with measuring(console, 3 * (repeats + 1)) as begin:
        for repeat in range(-1, repeats):  # the first round warms up
            begin("read bandwidth")
            measured = [read_bandwidth()]
            for draft_len in (0, DRAFT_LEN):
                begin(f"steps of {1 + draft_len} tokens")
                measured.append(_step_seconds(engine, oracle, prompt, draft_len))
            if repeat >= 0:
                for values, value in zip([bandwidths, *seconds.values()], measured, strict=True):
                    values.append(value)
    if not bandwidths:
        console.print("nothing was measured")
        return

    plain, verifying = seconds.values()
    shares = [
        work.num_bytes / bandwidth / step for bandwidth, step in zip(bandwidths, plain, strict=True)
    ]
    ratios = [b / a for a, b in zip(plain, verifying, strict=True)]
    measurements = {
        "read bandwidth, GB/s": Spread.of([value / 1e9 for value in bandwidths]),
        "step of 1 token, ms": Spread.of([1e3 * value for value in plain]),
        f"step of {1 + DRAFT_LEN} tokens, ms": Spread.of([1e3 * value for value in verifying]),
        "share of the bandwidth": Spread.of(shares),
        f"{1 + DRAFT_LEN} tokens over 1": Spread.of(ratios),
    }
    table = Table(title=f"batch 1, context {CONTEXT}, {args.dtype}: median (min to max)")
    table.add_column("")
    table.add_column("measured", justify="right")
    table.add_row("bytes a step must read, MB", f"{work.num_bytes / 1e6:.0f}")
    for name, spread in measurements.items():
        table.add_row(name, str(spread))
    console.print(table)
    goals = _goals(shares, ratios)
    print_goals(console, goals)
    if args.json is not None:
        results: dict[str, Any] = {
            "benchmark": "limit",
            "model": args.model,
            "dtype": args.dtype,
            "compiled": args.compile_folder is not None,
            "context": CONTEXT,
            "repeats": len(bandwidths),
            "bytes": work.num_bytes,
            "measurements": {name: asdict(spread) for name, spread in measurements.items()},
        }
        write_json(args.json, results, goals)


def _step_seconds(engine: Engine, oracle: Oracle, prompt: tuple[int, ...], draft_len: int) -> float:
    """Median of the decoding steps that verify drafts of `draft_len` tokens; without drafts, the
    oracle learns the text."""
    engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    engine.add(Request("only", prompt, sampling))
    text = [*prompt]
    seconds: list[float] = []
    while engine.has_work:
        engine.drain_stats()
        is_decoding = engine.status().num_decoding == 1
        started = time.perf_counter()
        deltas = engine.step()
        elapsed = time.perf_counter() - started
        text += [token for delta in deltas for token in delta.token_ids]
        if is_decoding and engine.drain_stats().drafted_tokens == draft_len:
            seconds.append(elapsed)
    if not draft_len:
        oracle.texts["only"] = text
    return statistics.median(seconds)


def _goals(shares: list[float], ratios: list[float]) -> list[Goal]:
    share, ratio = statistics.median(shares), statistics.median(ratios)
    return [
        Goal(
            "bytes of a step at batch 1 / read bandwidth / its time",
            f">= {LEAST_SHARE}",
            share,
            share >= LEAST_SHARE,
        ),
        Goal(
            f"step of {1 + DRAFT_LEN} tokens / step of 1, batch 1",
            f"<= {LARGEST_RATIO}",
            ratio,
            ratio <= LARGEST_RATIO,
        ),
    ]


if __name__ == "__main__":
    main()
