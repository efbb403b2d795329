"""What the service adds to its engine, and what it withstands: real Serve, HTTP and clients.

Each part starts applications of its own with `paceline serve` and ends them. What is compared is
measured in turns in one run. Clients, proxy and engine share this machine's cores.
"""

import traceback
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import options
from benchmarks.progress import measuring
from benchmarks.prompts import DEFAULT_PROMPTS, first_turns
from benchmarks.service.asks import Asks
from benchmarks.service.goals import goals
from benchmarks.service.parts import PARTS, Measured, Scope, steps
from benchmarks.service.tables import as_json, tables
from deployments.bench.results import print_goals, write_json
from deployments.config import parse_config

MINUTES, QUICK_MINUTES = 10.0, 1.0
TIMES, QUICK_TIMES = 10, 1


class Options(options.Options):
    parts: tuple[str, ...]
    minutes: float | None
    times: int | None
    prompts: Path


def main() -> None:
    """Measure, print, write."""
    args = _arguments()
    console = Console()
    scope = _scope(args)
    measured = Measured()
    failures: dict[str, str] = {}
    with measuring(console, steps(scope, args.parts)) as begin:
        for part in args.parts:
            try:
                PARTS[part](scope, begin, measured)
            except Exception as error:  # the other parts can be measured, and what was is kept
                failures[part] = "".join(traceback.format_exception(error))
    for table in tables(measured):
        console.print(table)
    reached = goals(measured)
    if args.json is not None:
        results: dict[str, Any] = {"benchmark": "service", "settings": scope.settings}
        write_json(args.json, {**results, "failures": failures, **as_json(measured)}, reached)
    print_goals(console, reached)
    if failures:
        raise SystemExit("\n".join(f"{part}: {told}" for part, told in failures.items()))


def _scope(args: Options) -> Scope:
    settings: dict[str, Any] = {
        "model": args.model,
        "engine": {"dtype": args.dtype, "compile": not args.eager},
    }
    name = parse_config(settings, "options").model_name
    texts = first_turns(args.prompts / "mt_bench_80.jsonl")
    minutes, times = (QUICK_MINUTES, QUICK_TIMES) if args.quick else (MINUTES, TIMES)
    return Scope(
        settings=settings,
        repeats=1 if args.quick else args.repeats,
        minutes=minutes if args.minutes is None else args.minutes,
        times=times if args.times is None else args.times,
        quick=args.quick,
        asks=lambda seed: Asks(name, texts, seed),
    )


def _arguments() -> Options:
    parser = options.parser(__doc__)
    parser.add_argument(
        "--parts",
        type=lambda names: tuple(names.split(",")),
        default=tuple(PARTS),
        help=f"some of {','.join(PARTS)}",
    )
    parser.add_argument("--minutes", type=float, help="of load (default: 10, with --quick 1)")
    parser.add_argument("--times", type=int, help="of each fault (default: 10, with --quick 1)")
    parser.add_argument("--prompts", type=Path, default=DEFAULT_PROMPTS, help="a folder")
    args = parser.parse_args(namespace=Options())
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"--parts: {part!r} is none of {', '.join(PARTS)}")
    if args.minutes is not None and args.minutes <= 0:
        parser.error(f"--minutes must be above 0, got {args.minutes:g}")
    if args.times is not None and args.times < 1:
        parser.error(f"--times must be at least 1, got {args.times}")
    if not (args.prompts / "mt_bench_80.jsonl").is_file():
        parser.error(f"--prompts: there is no mt_bench_80.jsonl in {args.prompts}")
    return args


if __name__ == "__main__":
    main()
