"""What was to be reached, and what was."""

from benchmarks.service.faults import IN_THE_WAY
from benchmarks.service.interleaved import added_ms
from benchmarks.service.parts import ALONE, OVER_HTTP, RESILIENT, Measured
from deployments.bench.results import Goal

MOST_ADDED_MS = {1: 12.0, 16: 30.0}
"""To the first token, by concurrency."""
MOST_STREAMING_COST = 0.1
MOST_MEMORY_CHANGE = 0.03


def goals(measured: Measured) -> list[Goal]:
    """Of what was measured."""
    return [
        *_first_token(measured),
        *_streaming(measured),
        *_held(measured),
        *_faults(measured),
    ]


def _at_most(name: str, most: float, value: float) -> Goal:
    return Goal(name, f"<= {most:g}", value, value <= most)


def _first_token(measured: Measured) -> list[Goal]:
    return [
        _at_most(
            f"first token over HTTP less that of the engine alone, concurrency {concurrency}, ms",
            MOST_ADDED_MS[concurrency],
            added_ms(rounds[OVER_HTTP], rounds[ALONE]).median,
        )
        for concurrency, rounds in measured.first_token.items()
        if len(rounds) == 2
    ]


def _streaming(measured: Measured) -> list[Goal]:
    lost = measured.streaming.lost
    if lost is None:
        return []
    name = "throughput that streaming costs, concurrency 16"
    return [_at_most(name, MOST_STREAMING_COST, lost.median)]


def _held(measured: Measured) -> list[Goal]:
    held = measured.held
    if not held.num_requests:
        return []
    found = [_at_most("load held: answers other than 200, 4xx and 503", 0, held.num_errors)]
    found += [
        _at_most(f"load held: change of memory, {kind}", MOST_MEMORY_CHANGE, abs(windows.change))
        for kind, windows in held.windows().items()
    ]
    if held.has_ended:
        name = "load held: counters that did not come back"
        found.append(_at_most(name, 0, len(held.left_behind)))
    return found


def _faults(measured: Measured) -> list[Goal]:
    found = []
    for fault, runs in measured.faults.get(RESILIENT, {}).items():
        name = f"resilient, {fault}, {runs.times} times"
        if fault not in IN_THE_WAY:
            found.append(_at_most(f"{name}: requests broken", 0, runs.tally.broken))
        found.append(_at_most(f"{name}: requests lost", 0, runs.tally.lost))
    for configuration, by_fault in measured.faults.items():
        never = sum(runs.never_well for runs in by_fault.values())
        left = sum(len(runs.left_behind) for runs in by_fault.values())
        found.append(_at_most(f"{configuration}: faults not recovered from", 0, never))
        found.append(_at_most(f"{configuration}: counters that did not come back", 0, left))
    return found
