"""How many replicas one policy actor serves: reports answered in time, a table spread quickly.

A real Ray actor, and replicas without engines: each is the channel that a replica has, with counts
that simulated replicas have made, as tasks of this one process. They introduce themselves as one
kind, poll for tables and report every 2 s, and after each new table at once, as replicas do. The
number of replicas grows step by step. At each, tables are set by hand and timed until the last
replica holds them; with all of them the policy then decides for itself while reports are timed.

This process answers for all replicas on the same machine, so that its share of a core is told
beside the actor's: where it nears 1 it is what limits, and the actor alone would do better.
"""

import argparse
import asyncio
import logging
import math
import os
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
from rich.console import Console

from benchmarks.actor_limit import introduction, simulated_windows
from benchmarks.fleet import CONFIGURED, IN_TIME_S, MAX_BATCH, MAX_DRAFT_LEN, Fleet, Reports
from cluster.policy_client import RayPolicyClient
from deployments.bench.results import Goal, Spread, print_goals, write_json
from deployments.simulate.costs import profile_of
from policy.actor import PolicyActor

STEPS = (10, 30, 100, 300, 1000)
BROADCASTS = 5
LEAST_IN_TIME = 0.99
LONGEST_BROADCAST_S = 0.1
BROADCAST_REPLICAS = 100
"""So many must hold a new table within that time."""
_MAX_CALLS = 10_000
"""As the application has it."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values do not exceed.

    >>> percentile([4.0, 1.0, 2.0, 3.0], 0.5)
    2.0
    """
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


class Options(argparse.Namespace):
    json: Path | None
    quick: bool
    replicas: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Of tables set by hand."""

    replicas: int
    seconds: Spread
    """From the call that sets a table to the last replica holding it."""


def limit_of(broadcasts: Sequence[Broadcast]) -> tuple[int | None, int | None]:
    """The most replicas that had a table in time, and the fewest that had not; None for none.

    With more replicas than the second, being in time again is luck.
    """
    ordered = sorted(broadcasts, key=lambda one: one.replicas)
    too_many = next((b.replicas for b in ordered if b.seconds.median > LONGEST_BROADCAST_S), None)
    enough = [b.replicas for b in ordered if too_many is None or b.replicas < too_many]
    return (max(enough) if enough else None), too_many


@dataclass(slots=True)
class Measured:
    """What there is so far."""

    broadcasts: list[Broadcast] = field(default_factory=list)
    reports: dict[str, Any] | None = None

    def goals(self) -> list[Goal]:
        goals = []
        near = [one for one in self.broadcasts if one.replicas <= BROADCAST_REPLICAS]
        if near:
            most = max(near, key=lambda one: one.replicas)
            name = f"seconds from set to the last of {most.replicas} replicas"
            median = most.seconds.median
            holds = median < LONGEST_BROADCAST_S
            goals.append(Goal(name, f"< {LONGEST_BROADCAST_S}", median, holds))
        if self.reports is not None:
            name = f"reports of {self.reports['replicas']} replicas answered in {IN_TIME_S:g} s"
            share = self.reports["share_in_time"]
            goals.append(Goal(name, f">= {LEAST_IN_TIME}", share, share >= LEAST_IN_TIME))
        return goals


def main() -> None:
    """Measure, print, write."""
    args = _arguments()
    console = Console()
    measured = Measured()
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING
    )
    try:
        asyncio.run(_measure(args, console, measured))
    except KeyboardInterrupt:
        console.print("stopped; what was measured so far follows")
    finally:
        ray.shutdown()
    goals = measured.goals()
    enough, too_many = limit_of(measured.broadcasts)
    if measured.broadcasts:
        console.print(
            f"a table reaches all within {LONGEST_BROADCAST_S:g} s up to {enough} replicas; "
            f"the first number that took longer: {too_many}"
        )
    print_goals(console, goals)
    if args.json is not None:
        results: dict[str, Any] = {
            "benchmark": "policy_actor",
            "report_every_seconds": IN_TIME_S,
            "broadcasts": [asdict(one) for one in measured.broadcasts],
            "broadcast_limit": {"most_in_time": enough, "fewest_late": too_many},
            "reports": measured.reports,
        }
        write_json(args.json, results, goals)


async def _measure(args: Options, console: Console, measured: Measured) -> None:
    # Typed by hand: Ray's own annotations know no methods of actors.
    actor: Any = PolicyActor
    handle = actor.options(num_cpus=0, max_concurrency=_MAX_CALLS).remote(CONFIGURED, MAX_DRAFT_LEN)
    profile = profile_of("a100-7b", max_num_seqs=MAX_BATCH, max_draft_len=MAX_DRAFT_LEN)
    fleet = Fleet(handle, introduction(profile), simulated_windows(profile))
    client = RayPolicyClient(handle)
    try:
        pid = int((await client.describe())["pid"])
        for size in (*(step for step in STEPS if step < args.replicas), args.replicas):
            console.print(f"{size} replicas ...")
            await fleet.grow(size)
            described = await client.set_policy({"fixed": 1})
            version = int(described["table"]["version"])
            await fleet.wait_for(version)
            one = await _broadcast(fleet, client, version)
            measured.broadcasts.append(one)
            console.print(f"  to the last replica: {one.seconds} s")
        await client.set_policy(CONFIGURED)
        console.print(f"reports for {args.seconds:g} s ...")
        measured.reports = await _reports(fleet, pid, args.seconds)
        console.print(_in_words(measured.reports), soft_wrap=True)
    finally:
        await fleet.close()
        ray.kill(handle)


async def _broadcast(fleet: Fleet, client: RayPolicyClient, version: int) -> Broadcast:
    """Of tables set by hand, each one version above the last: nobody else sets any meanwhile."""
    seconds = []
    for number in range(BROADCASTS):
        # The reports that the table before this one set off are over.
        await asyncio.sleep(IN_TIME_S * random.uniform(1.0, 1.5))
        version += 1
        arrival = asyncio.create_task(fleet.wait_for(version))
        await asyncio.sleep(0)  # the wait begins before anything can arrive
        started = time.perf_counter()
        await client.set_policy({"fixed": 2 + number % 2})
        seconds.append(await arrival - started)
    return Broadcast(fleet.size, Spread.of(seconds))


async def _reports(fleet: Fleet, pid: int, seconds: float) -> dict[str, Any]:
    """What became of the reports of so many seconds."""
    await asyncio.sleep(IN_TIME_S)
    fleet.reports = reports = Reports()
    cpu, own_cpu, started = _cpu_seconds(pid), time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    now = time.perf_counter()
    wall, answered = now - started, list(reports.answered_s)
    actor_cpu = _cpu_seconds(pid) - cpu
    return {
        "replicas": fleet.size,
        "seconds": wall,
        "reports_per_second": len(answered) / wall,
        "share_in_time": reports.in_time(now),
        "failed": reports.failed,
        "round_trip_seconds": {
            "median": percentile(answered, 0.5),
            "p99": percentile(answered, 0.99),
            "maximum": max(answered),
        },
        "actor_cpu_share": actor_cpu / wall,
        # Polls, stages and snapshots included: its inverse is what one core can take at most.
        "actor_cpu_seconds_per_report": actor_cpu / len(answered),
        "this_process_cpu_share": (time.process_time() - own_cpu) / wall,
    }


def _in_words(told: dict[str, Any]) -> str:
    times = told["round_trip_seconds"]
    return (
        f"{told['reports_per_second']:.0f} reports a second, {told['share_in_time']:.2%} answered "
        f"within {IN_TIME_S:g} s; median {times['median']:.3g} s, p99 {times['p99']:.3g} s; of a "
        f"core the actor took {told['actor_cpu_share']:.0%} "
        f"({1e3 * told['actor_cpu_seconds_per_report']:.2g} ms a report), all the replicas "
        f"{told['this_process_cpu_share']:.0%}"
    )


def _cpu_seconds(pid: int) -> float:
    """That a process has used, all its threads."""
    # The command may hold blanks and brackets; what follows it does not.
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def _arguments() -> Options:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="50 replicas, 5 s: a smoke test")
    parser.add_argument("--replicas", type=int, default=1000, help="at the end (default: 1000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that reports are timed")
    args = parser.parse_args(namespace=Options())
    if args.replicas < 1:
        parser.error(f"--replicas must be at least 1, got {args.replicas}")
    if args.quick:
        args.replicas, args.seconds = 50, 5.0
    return args


if __name__ == "__main__":
    main()
