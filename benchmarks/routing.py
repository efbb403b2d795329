"""Does a router that counts tokens, and knows prefixes, beat Serve's own? On a virtual clock.

Compared on many replicas with a batch-cost model (`routing_simulation.py`): a random choice of two
by their requests, as Serve's default does; the least requests; the least tokens outstanding; the
same with sessions or prefixes followed; and one that fills a replica up to the batch at which
drafts pay best before the next. Nobody knows how long an answer will get.
"""

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.progress import measuring
from benchmarks.routing_simulation import (
    Answer,
    Ask,
    Router,
    SimulatedReplica,
    plain,
    simulate,
    speculative,
)
from benchmarks.routing_workloads import at_load, chat, heavy_tailed, trace
from deployments.bench.results import Goal, print_goals, write_json
from deployments.routing.books import RoutingBooks
from deployments.routing.view import SeenRequest

NUM_REPLICAS = 16
LOAD = 0.8
BEST_BATCH = 8
"""Of `speculative`: more tokens a second at each sequence above it, but hardly faster ones."""
LEAST_GAIN = 0.05
"""By which p95 end to end must be better where prefixes are shared, for a router to be default."""
MOST_LOSS = 0.02
"""By which it may be worse elsewhere."""
BY_PREFIX = "least tokens + prefix"
BY_TOKENS = "least tokens"
SERVES = "two choices"


class TwoChoices(Router):
    """Of two replicas at random the one with fewer requests, as this router has counted them."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._counts: dict[int, int] = {}
        self._home: dict[int, int] = {}

    def choose(self, number: int, ask: Ask, replicas: Sequence[SimulatedReplica]) -> int:
        return self._take(number, self._draw.sample(range(len(replicas)), 2))

    def _take(self, number: int, candidates: Sequence[int]) -> int:
        chosen = min(candidates, key=self._count)
        self._counts[chosen] = self._count(chosen) + 1
        self._home[number] = chosen
        return chosen

    def _count(self, replica: int) -> int:
        return self._counts.get(replica, 0)

    def ended(self, number: int) -> None:
        self._counts[self._home.pop(number)] -= 1


class LeastRequests(TwoChoices):
    """Of all replicas."""

    def choose(self, number: int, ask: Ask, replicas: Sequence[SimulatedReplica]) -> int:
        return self._take(number, self._draw.sample(range(len(replicas)), len(replicas)))


class FilledUp(TwoChoices):
    """The fullest replica below the batch at which drafts pay best; where there is none, the one
    with the fewest."""

    def choose(self, number: int, ask: Ask, replicas: Sequence[SimulatedReplica]) -> int:
        below = [r for r in range(len(replicas)) if self._count(r) < BEST_BATCH]
        if below:
            return self._take(number, [max(below, key=self._count)])
        return self._take(number, range(len(replicas)))


class ByTokens(Router):
    """The router of the application, by its own books."""

    def __init__(self, see: Callable[[Ask], SeenRequest]) -> None:
        self._books: RoutingBooks[int] = RoutingBooks()
        self._see = see

    def choose(self, number: int, ask: Ask, replicas: Sequence[SimulatedReplica]) -> int:
        seen = self._see(ask)
        chosen = self._books.choose(range(len(replicas)), seen)[0]
        self._books.send(str(number), chosen, seen)
        return chosen

    def ended(self, number: int) -> None:
        self._books.end(str(number))


ROUTERS: dict[str, Callable[[int], Router]] = {
    SERVES: lambda seed: TwoChoices(random.Random(seed)),
    "least requests": lambda seed: LeastRequests(random.Random(seed)),
    BY_TOKENS: lambda seed: ByTokens(lambda ask: ask.as_http),
    "least tokens + session": lambda seed: ByTokens(lambda ask: ask.as_session),
    BY_PREFIX: lambda seed: ByTokens(lambda ask: ask.as_handle_call),
    "filled up": lambda seed: FilledUp(random.Random(seed)),
}


def percentiles(answers: Sequence[Answer]) -> dict[str, float]:
    def of(values: Sequence[float], share: float) -> float:
        return sorted(values)[math.ceil(share * len(values)) - 1]

    first = [answer.ttft_s for answer in answers]
    whole = [answer.end_to_end_s for answer in answers]
    return {
        "ttft_p50_s": of(first, 0.5),
        "ttft_p95_s": of(first, 0.95),
        "end_to_end_p50_s": of(whole, 0.5),
        "end_to_end_p95_s": of(whole, 0.95),
    }


def measure(asks_of: Callable[[int], Sequence[Ask]], repeats: int, **options: Any) -> Any:
    """By router: medians over the seeds."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ROUTERS}
    for seed in range(repeats):
        asks = at_load(asks_of(seed), NUM_REPLICAS, LOAD)
        for name, router in ROUTERS.items():
            runs[name].append(percentiles(simulate(asks, router(seed), NUM_REPLICAS, **options)))
    return {
        name: {key: statistics.median(run[key] for run in told) for key in told[0]}
        for name, told in runs.items()
    }


def workloads(count: int, traces: Path | None) -> dict[str, Callable[[int], Sequence[Ask]]]:
    found: dict[str, Callable[[int], Sequence[Ask]]] = {
        "chat": lambda seed: chat(count, random.Random(seed)),
        "heavy tails": lambda seed: heavy_tailed(count, random.Random(seed)),
    }
    for file in sorted(traces.glob("*.csv")) if traces is not None else ():
        found[f"trace {file.stem}"] = lambda seed, file=file: trace(file, count)  # type: ignore[misc]
    return found


def goals(results: dict[str, Any]) -> list[Goal]:
    """Of the default router, where it sees prefixes, and where it sees lengths alone."""
    found = []
    for workload, by_router in results.items():
        serves = by_router[SERVES]["end_to_end_p95_s"]
        least = {BY_TOKENS: 1 + MOST_LOSS}
        if workload.startswith("chat"):
            least[BY_PREFIX] = 1 - LEAST_GAIN
        for router, most in least.items():
            ratio = by_router[router]["end_to_end_p95_s"] / serves
            goal = f"p95 end to end at most {most:.2f} of two choices'"
            found.append(Goal(f"{workload}: {router}", goal, ratio, ratio <= most))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="fewer requests, once: a smoke test")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--traces", type=Path, help="a folder of recorded traces, as CSV files")
    args = parser.parse_args()
    console = Console()
    count, repeats = (1500, 1) if args.quick else (4000, args.repeats)
    results: dict[str, Any] = {}
    todo = workloads(count, args.traces)
    with measuring(console, len(todo) + 1) as begin:
        for name, asks_of in todo.items():
            begin(name)
            results[name] = measure(asks_of, repeats, tokens_per_round=plain)
            if name == "chat":
                begin("chat with drafts")
                results["chat with drafts"] = measure(
                    asks_of, repeats, tokens_per_round=speculative
                )
    for name, by_router in results.items():
        table = Table(title=f"{name}, {NUM_REPLICAS} replicas, load {LOAD:g}")
        for column in ("router", "TTFT p50", "p95", "end to end p50", "p95, s"):
            table.add_column(column)
        for router, told in by_router.items():
            table.add_row(router, *(f"{value:.3g}" for value in told.values()))
        console.print(table)
    reached = goals(results)
    print_goals(console, reached)
    if args.json is not None:
        write_json(
            args.json, {"num_replicas": NUM_REPLICAS, "load": LOAD, "routing": results}, reached
        )


if __name__ == "__main__":
    main()
