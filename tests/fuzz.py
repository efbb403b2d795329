"""`make fuzz`: random scenarios, one for each seed, until one fails, all passed, or Ctrl-C."""

import argparse
import logging
import multiprocessing
import os
import secrets
import signal
import sys
import threading
import time
import traceback
import warnings
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from tests.engine.scenario import Scenario

MOST_JOBS = 2
"""More would want more memory than a small machine has."""


@dataclass(frozen=True)
class Failure:
    seed: int
    error: str
    """The end of a traceback."""
    scenario: str
    """What of the scenario is enough to fail."""


def main() -> int:
    arguments = _arguments()
    console = Console()
    console.print(f"{arguments.scenarios} scenarios from seed {arguments.seed} on", highlight=False)
    progress = Progress(
        TextColumn("scenarios"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    started = time.perf_counter()
    num_passed = 0
    failure: Failure | None = None
    interrupted = False
    seeds = range(arguments.seed, arguments.seed + arguments.scenarios)
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, _start_worker) as pool:
        try:
            with progress:
                task = progress.add_task("", total=len(seeds))
                for failure in pool.imap_unordered(attempt, seeds):
                    progress.advance(task)
                    if failure is not None:
                        pool.terminate()
                        break
                    num_passed += 1
            pool.close()
            pool.join()
        except KeyboardInterrupt:
            interrupted = True
    seconds = time.perf_counter() - started
    state = "interrupted: " if interrupted else ""
    console.print(f"{state}{num_passed} scenarios passed in {seconds:.0f} s", highlight=False)
    if failure is None:
        return 130 if interrupted else 0
    print(
        f"\nseed {failure.seed} failed:\n{failure.error}\nIt is enough that\n{failure.scenario}\n"
    )
    print(f"Again:  make fuzz SEED={failure.seed} SCENARIOS=1 JOBS=1")
    return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--scenarios", type=_at_least_one, default=10_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--jobs", type=int, choices=range(1, MOST_JOBS + 1), default=MOST_JOBS)
    return parser.parse_args()


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _start_worker() -> None:
    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # of libraries while they load
    os.environ["TQDM_DISABLE"] = "1"
    import torch
    from tqdm import tqdm

    # Else its lock is a semaphore of the system's, which a worker that is stopped leaves behind.
    tqdm.set_lock(threading.RLock())
    torch.set_num_threads(1)


def attempt(seed: int) -> Failure | None:
    """What is wrong with the scenario of a seed, if anything."""
    from tests.engine.scenario import draw_scenario

    scenario = draw_scenario(Random(seed))
    error = _error(scenario)
    if error is None:
        return None
    return Failure(seed, error, str(_smallest_that_fails(scenario)))


def _error(scenario: "Scenario") -> str | None:
    from tests.engine.replay import check

    try:
        check(scenario)
    except Exception:
        return traceback.format_exc(limit=-3)
    return None


def _smallest_that_fails(scenario: "Scenario") -> "Scenario":
    """Leave out what can be left out: arrivals, their requests, aborts and swaps, one by one."""
    for smaller in _smaller(scenario):
        if _error(smaller) is not None:
            return _smallest_that_fails(smaller)
    return scenario


def _smaller(scenario: "Scenario") -> "list[Scenario]":
    found = []
    for request in scenario.requests:
        arrivals = [
            replace(arrival, requests=tuple(one for one in arrival.requests if one != request))
            for arrival in scenario.arrivals
        ]
        found.append(
            replace(
                scenario,
                arrivals=tuple(arrival for arrival in arrivals if arrival.requests),
                aborts=tuple(abort for abort in scenario.aborts if abort[1] != request.request_id),
            )
        )
    found += [
        replace(scenario, aborts=tuple(abort for abort in scenario.aborts if abort != left_out))
        for left_out in scenario.aborts
    ]
    found += [
        replace(scenario, swaps=tuple(swap for swap in scenario.swaps if swap != left_out))
        for left_out in scenario.swaps
    ]
    return [smaller for smaller in found if smaller.arrivals]


if __name__ == "__main__":
    sys.exit(main())
