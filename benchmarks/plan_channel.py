"""What the plan channel between ranks takes: bytes, and time from plan to plan, without a model.

Rank 0 sends a step's inputs to another process, which decodes them and says so. From before they
are encoded to that answer is more than what the channel adds to a step, as an answer has no part in
one. Contexts of 1,000 tokens in blocks of 16, drafts of 4.
"""

import multiprocessing
import threading
import time
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.options import Options, parser
from benchmarks.progress import measuring
from deployments.bench.results import Goal, Spread, print_goals, write_json
from engine.ranks.hub import Hub
from engine.ranks.spec import RankSpec
from engine.ranks.uplink import Uplink
from engine.ranks.wire import decode, encode
from engine.runner import RunnerInput

CONTEXT, BLOCK_SIZE, DRAFT_LEN = 1000, 16, 4
WARM_UP = 50
GOAL_BATCH, MOST_MS = 16, 1.0
DECODED = "decoded"


def main() -> None:
    args = parser(__doc__).parse_args(namespace=Options())
    console = Console()
    batch_sizes = (1, 16) if args.quick else (1, 16, 64)
    steps = 300 if args.quick else 3000
    rows: list[dict[str, Any]] = []
    with measuring(console, len(batch_sizes)) as begin:
        for batch_size in batch_sizes:
            begin(f"batch {batch_size}")
            rows.append(_measure(batch_size, steps))
    table = Table(title="the plan channel, two processes on one machine")
    for column in ("batch", "bytes a step", "encode, ms", "sent and decoded, ms (95 %)"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["batch_size"]),
            f"{row['bytes']:,}",
            f"{row['encode_ms']['median']:.3f}",
            f"{row['round_trip_ms']['median']:.3f} ({row['round_trip_p95_ms']:.3f})",
        )
    console.print(table)
    goals = [
        Goal(
            f"channel at batch {row['batch_size']}, ms",
            f"<= {MOST_MS:g}",
            row["round_trip_ms"]["median"],
            row["round_trip_ms"]["median"] <= MOST_MS,
        )
        for row in rows
        if row["batch_size"] == GOAL_BATCH
    ]
    if args.json is not None:
        write_json(args.json, {"benchmark": "plan_channel", "steps": steps, "rows": rows}, goals)
    print_goals(console, goals)


def _measure(batch_size: int, steps: int) -> dict[str, Any]:
    answered = threading.Semaphore(0)

    def report(stage: str) -> None:
        if stage.endswith(DECODED):
            answered.release()

    hub = Hub(2, host="127.0.0.1", report=report, kill=lambda rank: None)
    process = _follower(hub.spec(1, 0))
    try:
        answered.acquire()  # it is there
        inputs = [
            RunnerInput(
                [7] * (1 + DRAFT_LEN),
                CONTEXT,
                list(range(-(-CONTEXT // BLOCK_SIZE))),
                DRAFT_LEN + 1,
            )
            for _ in range(batch_size)
        ]
        encoding, whole, message = [], [], b""
        for step in range(WARM_UP + steps):
            started = time.perf_counter()
            message = encode(inputs, step)
            encoded = time.perf_counter()
            hub.send_plan(message)
            answered.acquire()
            hub.done()
            if step >= WARM_UP:
                encoding.append(1e3 * (encoded - started))
                whole.append(1e3 * (time.perf_counter() - started))
    finally:
        hub.close()
        process.join(10)
        process.kill()
    whole.sort()
    return {
        "batch_size": batch_size,
        "bytes": len(message),
        "encode_ms": asdict(Spread.of(encoding)),
        "round_trip_ms": asdict(Spread.of(whole)),
        "round_trip_p95_ms": whole[int(0.95 * len(whole))],
    }


def _follower(spec: RankSpec) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=_follow, args=(spec,))
    process.start()
    return process


def _follow(spec: RankSpec) -> None:
    with Uplink(spec) as uplink:
        uplink.stage(DECODED)
        while (message := uplink.receive()) is not None:
            decode(message)
            uplink.stage(DECODED)


if __name__ == "__main__":
    main()
