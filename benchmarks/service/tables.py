"""What was measured, as tables, and as JSON."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table

from benchmarks.service.closed_loop import Round
from benchmarks.service.interleaved import added_ms, lost_share, ttft_ms
from benchmarks.service.parts import ALONE, OVER_HTTP, PLAIN, RESILIENT, Measured
from benchmarks.service.streaming import STREAMED, WHOLE
from deployments.bench.results import Spread


def tables(measured: Measured) -> Iterator[Table]:
    """Of the parts that were measured."""
    if any(measured.first_token.values()):
        yield _first_token(measured)
    if any(measured.pace.values()):
        yield _pace(measured)
    if measured.streaming.chunks:
        yield _throughput(measured)
        yield _chunks(measured)
    if measured.held.num_requests:
        yield _held(measured)
    for configuration in measured.faults:
        yield _faults(measured, configuration)
    if any(measured.resilient.values()):
        yield _resilient(measured)


def as_json(measured: Measured) -> dict[str, Any]:
    """All figures; of rounds, medians and rates."""
    streaming, held = measured.streaming, measured.held
    return {
        "first_token_ms": {
            str(concurrency): _ttfts(rounds) for concurrency, rounds in measured.first_token.items()
        },
        "pace_tokens_per_second": {
            str(concurrency): _rates(rounds) for concurrency, rounds in measured.pace.items()
        },
        "streaming": {
            "tokens_per_second": _rates(streaming.rounds),
            "chunks": streaming.chunks,
            "cpu_ms_per_chunk": {kind: asdict(spread) for kind, spread in _cpu(measured).items()},
        },
        "held": {
            "capacity_requests_per_second": held.capacity_rps,
            "seconds": held.seconds,
            "outcomes": dict(held.outcomes),
            "outcomes_of_bad_requests": dict(held.bad_outcomes),
            "errors": held.num_errors,
            "first_errors": held.errors,
            "health_failures": held.health_failures,
            "ttft_seconds": asdict(Spread.of(held.ttft_s)) if held.ttft_s else None,
            "memory_bytes": {kind: windows.medians for kind, windows in held.windows().items()},
            "left_behind": held.left_behind,
        },
        "faults": {
            configuration: {str(fault): asdict(runs) for fault, runs in by_fault.items()}
            for configuration, by_fault in measured.faults.items()
        },
        "resilient": {
            name: {"first_token_ms": _ttfts(rounds), "tokens_per_second": _rates(rounds)}
            for name, rounds in measured.resilient.items()
        },
    }


def _ttfts(rounds: dict[str, list[Round]]) -> dict[str, list[float]]:
    return {
        arm: [ttft_ms(one) for one in of_arm if one.tries[0].ttft_s is not None]
        for arm, of_arm in rounds.items()
    }


def _rates(rounds: dict[str, list[Round]]) -> dict[str, list[float]]:
    return {arm: [one.tokens_per_second for one in of_arm] for arm, of_arm in rounds.items()}


def _cpu(measured: Measured) -> dict[str, Spread]:
    return measured.streaming.cpu_ms_per_chunk() if measured.streaming.chunks else {}


def _first_token(measured: Measured) -> Table:
    title = "to the first token, ms: medians of rounds"
    return _beside_alone(title, measured.first_token, _ttfts, "added", added_ms)


def _pace(measured: Measured) -> Table:
    title = "long answers, streamed, tokens/s"
    return _beside_alone(title, measured.pace, _rates, "share lost", lost_share)


def _beside_alone(
    title: str,
    by_concurrency: dict[int, dict[str, list[Round]]],
    figures: Callable[[dict[str, list[Round]]], dict[str, list[float]]],
    difference: str,
    of_rounds: Callable[[list[Round], list[Round]], Spread],
) -> Table:
    """`difference`: what `of_rounds` says of the rounds over HTTP and those alone."""
    table = Table(title=title)
    for column in ("concurrency", ALONE, OVER_HTTP, difference):
        table.add_column(column, justify="right")
    for concurrency, rounds in by_concurrency.items():
        if len(rounds) == 2:
            table.add_row(
                str(concurrency),
                *(str(Spread.of(figures(rounds)[arm])) for arm in (ALONE, OVER_HTTP)),
                str(of_rounds(rounds[OVER_HTTP], rounds[ALONE])),
            )
    return table


def _throughput(measured: Measured) -> Table:
    table = Table(title="tokens/s at concurrency 16")
    for column in (WHOLE, STREAMED, "share lost"):
        table.add_column(column, justify="right")
    rates = _rates(measured.streaming.rounds)
    table.add_row(
        str(Spread.of(rates[WHOLE])),
        str(Spread.of(rates[STREAMED])),
        str(measured.streaming.lost),
    )
    return table


def _chunks(measured: Measured) -> Table:
    table = Table(title="CPU time that a chunk takes, ms")
    table.add_column("process")
    table.add_column("streamed less whole, over chunks", justify="right")
    for kind, spread in _cpu(measured).items():
        table.add_row(kind, str(spread))
    return table


def _held(measured: Measured) -> Table:
    held = measured.held
    table = Table(title=f"{held.seconds:.0f} s at 1.2 times {held.capacity_rps:.2f} requests/s")
    table.add_column("what")
    table.add_column("found", justify="right")
    for outcome, count in sorted(held.outcomes.items()):
        table.add_row(f"good requests: {outcome}", str(count))
    for outcome, count in sorted(held.bad_outcomes.items()):
        table.add_row(f"bad requests: {outcome}", str(count))
    if held.ttft_s:
        table.add_row("to the first token of those streamed, s", str(Spread.of(held.ttft_s)))
    for kind, windows in held.windows().items():
        medians = " ".join(f"{median / 1e6:.0f}" for median in windows.medians)
        table.add_row(f"memory of the {kind}, MB, by window", medians)
    for name, count in held.left_behind.items():
        table.add_row(f"left behind: {name}", str(count))
    for error in held.errors[:5]:
        table.add_row("error", error)
    return table


def _faults(measured: Measured, configuration: str) -> Table:
    table = Table(title=f"faults under load, {configuration}")
    for column in ("fault", "times", "requests", "broken", "lost", "well again after, s"):
        table.add_column(column)
    for fault, runs in measured.faults[configuration].items():
        table.add_row(
            fault,
            *map(str, (runs.times, runs.tally.requests, runs.tally.broken, runs.tally.lost)),
            str(Spread.of(runs.recovery_s)) if runs.recovery_s else "never",
        )
    return table


def _resilient(measured: Measured) -> Table:
    table = Table(title="what `resilient: true` costs")
    for column in ("", "first token, ms more", "throughput, share lost"):
        table.add_column(column)
    for name, rounds in measured.resilient.items():
        if len(rounds) == 2:
            is_streamed = rounds[PLAIN][0].tries[0].ttft_s is not None
            table.add_row(
                name,
                str(added_ms(rounds[RESILIENT], rounds[PLAIN])) if is_streamed else "",
                str(lost_share(rounds[RESILIENT], rounds[PLAIN])),
            )
    return table
