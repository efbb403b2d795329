"""How many replicas one policy actor serves, by what its own work takes: boards as the actor has
them, told what simulated replicas report.

Time is virtual: each of N replicas reports every 2 s, the board decides once a second and hands out
what it learned every 10 s, and the CPU time of all that is what is measured, in this process. The
calls themselves come on top, with what Ray takes for each (`policy_actor.py` measures both
together, of an actor in a process of its own).
"""

import argparse
import pickle
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.progress import measuring
from deployments.bench.results import write_json
from deployments.simulate.actor_load import ActorLoad
from deployments.simulate.arms import DraftAcceptance, choices
from deployments.simulate.costs import Profile, profile_of
from deployments.simulate.fleet import REPORT_S, Fleet
from deployments.simulate.traffic import gamma
from policy.board import Introduction
from policy.boards import PolicyBoards
from policy.choice import parse_choice
from policy.stats import StatsWindow

SIZES = (10, 100, 1000, 10_000)
_SOURCES = 16
"""Simulated replicas whose reports stand for all."""
_RATE = 12.0
"""Requests a second that each gets: about two thirds of what it can do without drafts."""


class _Kept(ActorLoad):
    """With the reports themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.windows: list[StatsWindow] = []

    def reported(self, window: StatsWindow) -> None:
        super().reported(window)
        self.windows.append(window)


def simulated_windows(profile: Profile, seconds: float = 6.0) -> list[StatsWindow]:
    """What replicas of a profile report, in service under the adaptive policy."""
    acceptance = DraftAcceptance((0.75, 0.7, 0.65), spread=0.1)
    rate = _RATE * _SOURCES
    arrivals = gamma(1 / rate, 1.5, int(rate * seconds), 256, 128, 0)
    fleet = Fleet(
        profile, choices(profile, acceptance)["adaptive"], _SOURCES, arrivals, acceptance.of
    )
    fleet.actor = kept = _Kept()
    fleet.run()
    # The first and last ones are of a fleet that fills and empties.
    return [window for window in kept.windows[_SOURCES:] if window.steps > 20]


def introduction(profile: Profile) -> Introduction:
    return Introduction(
        "simulated",
        profile.name,
        profile.max_num_seqs,
        profile.max_draft_len,
        profile.calibration,
    )


def measure(size: int, profile: Profile, windows: list[StatsWindow], seconds: float) -> Any:
    """Of `size` replicas, for so many seconds of CPU time at most."""
    now = [0.0]
    boards = PolicyBoards(parse_choice("adaptive"), profile.max_draft_len, lambda: now[0])
    said = introduction(profile)
    for number in range(size):
        boards.introduce(f"replica-{number}", said)
    reports = tables = snapshots = 0
    sent = [pickle.dumps(window) for window in windows]
    began = time.process_time()
    while time.process_time() - began < seconds:
        replica = f"replica-{reports % size}"
        now[0] += REPORT_S / size
        # As it would come, from another process.
        window = pickle.loads(sent[reports % len(sent)])
        tables += boards.observe(replica, window)
        snapshots += boards.of(replica).snapshot(replica) is not None
        reports += 1
    cpu_s = time.process_time() - began
    return {
        "replicas": size,
        "reports": reports,
        "cpu_s_per_report": cpu_s / reports,
        "share_of_a_core": cpu_s / now[0],
        "reports_per_s": size / REPORT_S,
        "bytes_per_report": sum(map(len, sent)) / len(sent),
        "bytes_per_s": size / REPORT_S * sum(map(len, sent)) / len(sent),
        "tables": tables,
        "snapshots": snapshots,
    }


def limit(measured: list[dict[str, Any]]) -> float | None:
    """Replicas at which the work takes a whole core, on a straight line between the sizes
    measured; None where it doesn't at any of them."""
    before = None
    for one in measured:
        if one["share_of_a_core"] >= 1.0:
            if before is None:
                return float(one["replicas"])
            low, high = before["share_of_a_core"], one["share_of_a_core"]
            way = (1.0 - low) / (high - low)
            found: float = before["replicas"] + way * (one["replicas"] - before["replicas"])
            return found
        before = one
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--cost", default="a100-7b", help="as of `paceline simulate`")
    parser.add_argument("--seconds", type=float, default=5.0, help="of CPU time at each size")
    args = parser.parse_args()
    console = Console()
    profile = profile_of(args.cost, max_num_seqs=32)
    measured: list[dict[str, Any]] = []
    with measuring(console, 1 + len(SIZES)) as begin:
        begin("simulating replicas")
        windows = simulated_windows(profile)
        for size in SIZES:
            begin(f"{size} replicas")
            measured.append(measure(size, profile, windows, args.seconds))
    table = Table(title="the policy actor's own work")
    for column in ("replicas", "reports/s", "kB/s", "ms a report", "of a core"):
        table.add_column(column, justify="right")
    for one in measured:
        table.add_row(
            str(one["replicas"]),
            f"{one['reports_per_s']:g}",
            f"{one['bytes_per_s'] / 1e3:.3g}",
            f"{1e3 * one['cpu_s_per_report']:.3g}",
            f"{one['share_of_a_core']:.1%}",
        )
    console.print(table)
    most = limit(measured)
    console.print(f"a core is full at {'more than were tried' if most is None else f'{most:.0f}'}")
    if args.json is not None:
        write_json(args.json, {"benchmark": "actor_limit", "sizes": measured, "limit": most}, [])


if __name__ == "__main__":
    main()
