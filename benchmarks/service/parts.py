"""The parts of the benchmark: what each starts, and where it puts what it finds."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.progress import Begin
from benchmarks.service.asks import Asks, Shape
from benchmarks.service.clients import WireClient
from benchmarks.service.closed_loop import Round
from benchmarks.service.engine_alone import engine_alone
from benchmarks.service.faults import (
    PLAIN_FAULTS,
    RANK_FAULTS,
    RESILIENT_FAULTS,
    Fault,
    FaultRuns,
    run_faults,
    schedule,
    settings_for,
)
from benchmarks.service.held import SETTINGS, Held, capacity, hold
from benchmarks.service.interleaved import Arm, interleaved
from benchmarks.service.served import Served, serving
from benchmarks.service.streaming import STREAMED, WHOLE, Streaming, measure_streaming
from deployments.config import parse_config

ALONE, OVER_HTTP = "engine alone", "over HTTP"
PLAIN, RESILIENT = "plain", "resilient"
CONCURRENCIES = (1, 16)
COMPARED = ((1, True), (16, True), (16, False))
"""With and without `resilient`: concurrency, and whether answers are streamed."""
FEW_TIMES = 3
CAPACITY_S = 30.0
QUICK_CAPACITY_S = 10.0
ENGINE_PLACES = 32
"""`engine.max_num_seqs` as it is by default: with as many clients an engine does all it can."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is measured."""

    settings: dict[str, Any]
    """Of every application, but for what a part needs."""
    repeats: int
    minutes: float
    """Of load."""
    times: int
    """How often each fault happens."""
    quick: bool
    asks: Callable[[int], Asks]
    """By seed."""

    def faults(self) -> list[tuple[str, list[Fault]]]:
        """By application, in order: its configuration, and what happens to it."""
        # Without `resilient` requests are lost, as is known: a few times tell how many.
        few = min(self.times, FEW_TIMES)
        return [
            (PLAIN, schedule(PLAIN_FAULTS, few)),
            (PLAIN, schedule(RANK_FAULTS, few)),
            (RESILIENT, schedule(RESILIENT_FAULTS, self.times)),
            (RESILIENT, schedule(RANK_FAULTS, self.times)),
        ]

    def shape(self, concurrency: int) -> Shape:
        """Of a round."""
        if concurrency == 1:
            return Shape(3 if self.quick else 20, 8, 8)
        return Shape(16 if self.quick else 64, 16, 64)

    def long_shape(self, concurrency: int) -> Shape:
        """Of a round whose time is that of decoding."""
        if concurrency == 1:
            return Shape(1 if self.quick else 4, 128, 128)
        return Shape(16 if self.quick else 48, 64, 64)


@dataclass(slots=True)
class Measured:
    """What there is so far."""

    first_token: dict[int, dict[str, list[Round]]] = field(default_factory=dict)
    """By concurrency and arm."""
    pace: dict[int, dict[str, list[Round]]] = field(default_factory=dict)
    """The same, of long answers."""
    streaming: Streaming = field(default_factory=Streaming)
    held: Held = field(default_factory=Held)
    faults: dict[str, dict[Fault, FaultRuns]] = field(default_factory=dict)
    """By configuration."""
    resilient: dict[str, dict[str, list[Round]]] = field(default_factory=dict)
    """By what is compared, and arm."""


def first_token(scope: Scope, begin: Begin, measured: Measured) -> None:
    _beside_alone(scope, begin, scope.shape, measured.first_token)


def pace(scope: Scope, begin: Begin, measured: Measured) -> None:
    _beside_alone(scope, begin, scope.long_shape, measured.pace)


def _beside_alone(
    scope: Scope,
    begin: Begin,
    shape: Callable[[int], Shape],
    found: dict[int, dict[str, list[Round]]],
) -> None:
    """The same chats through HTTP and in the engine alone, in turns: each server idles while the
    other one is asked."""
    begin("starting the application")
    with serving(scope.settings) as served:
        rungs = asyncio.run(_frozen_table(served))
        begin("building the engine alone")
        with engine_alone(parse_config(scope.settings, "service"), rungs) as alone:

            async def measure() -> None:
                async with WireClient(served.url) as client:
                    arms = {ALONE: Arm(alone.chat, True), OVER_HTTP: Arm(client.chat, True)}
                    for number, concurrency in enumerate(CONCURRENCIES):
                        await interleaved(
                            arms,
                            scope.asks(0),
                            shape(concurrency),
                            concurrency=concurrency,
                            first=100 * number,
                            repeats=scope.repeats,
                            begin=begin,
                            rounds=found.setdefault(concurrency, {}),
                        )

            asyncio.run(measure())


def streaming(scope: Scope, begin: Begin, measured: Measured) -> None:
    begin("starting the application")
    with serving(scope.settings) as served:
        asyncio.run(_frozen_table(served))
        shape = scope.shape(16)
        asyncio.run(
            measure_streaming(
                served, scope.asks(0), shape, scope.repeats, begin, measured.streaming
            )
        )


def load(scope: Scope, begin: Begin, measured: Measured) -> None:
    begin("starting the application")
    with serving(_merged(scope.settings, SETTINGS)) as served:
        begin("what it can do")
        seconds = QUICK_CAPACITY_S if scope.quick else CAPACITY_S
        asks, found = scope.asks(3), measured.held
        found.capacity_rps = asyncio.run(capacity(served, asks, ENGINE_PLACES, seconds))
        begin(f"{scope.minutes:g} minutes of load")
        asyncio.run(hold(served, asks, 60 * scope.minutes, found))


def faults(scope: Scope, begin: Begin, measured: Measured) -> None:
    for configuration, todo in scope.faults():
        found = measured.faults.setdefault(configuration, {})
        own = settings_for(todo, resilient=configuration == RESILIENT)
        begin(f"starting the application, {configuration}")
        with serving(_merged(scope.settings, own)) as served:
            num_replicas = own["replicas"]["num_replicas"]
            asyncio.run(run_faults(served, scope.asks(4), todo, num_replicas, begin, found))


def resilient(scope: Scope, begin: Begin, measured: Measured) -> None:
    """What a request costs more with `resilient: true`: two applications that take turns."""
    begin("starting two applications")
    with _both(scope.settings) as (plain, safe):

        async def measure() -> None:
            rungs = await _frozen_table(plain)
            await _set_table(safe, rungs)
            async with WireClient(plain.url) as first, WireClient(safe.url) as second:
                for number, (concurrency, stream) in enumerate(
                    ((1, True), (16, True), (16, False))
                ):
                    arms = {PLAIN: Arm(first.chat, stream), RESILIENT: Arm(second.chat, stream)}
                    name = f"{STREAMED if stream else WHOLE}, concurrency {concurrency}"
                    await interleaved(
                        arms,
                        scope.asks(0),
                        scope.shape(concurrency),
                        concurrency=concurrency,
                        first=100 * number,
                        repeats=scope.repeats,
                        begin=begin,
                        rounds=measured.resilient.setdefault(name, {}),
                    )

        asyncio.run(measure())


PARTS: dict[str, Callable[[Scope, Begin, Measured], None]] = {
    "ttft": first_token,
    "pace": pace,
    "streaming": streaming,
    "load": load,
    "faults": faults,
    "resilient": resilient,
}


def steps(scope: Scope, parts: Sequence[str]) -> int:
    """How often the parts begin something."""
    rounds = scope.repeats + 1
    of_part = {
        "ttft": 2 + len(CONCURRENCIES) * rounds,
        "pace": 2 + len(CONCURRENCIES) * rounds,
        "streaming": 1 + rounds,
        "load": 3,
        "faults": sum(2 + len(todo) for _, todo in scope.faults()),
        "resilient": 1 + len(COMPARED) * rounds,
    }
    return sum(of_part[part] for part in parts)


@contextmanager
def _both(settings: dict[str, Any]) -> Iterator[tuple[Served, Served]]:
    with serving(settings) as plain, serving({**settings, "resilient": True}) as safe:
        yield plain, safe


async def _frozen_table(served: Served) -> list[tuple[int, int]]:
    """Fix the table that the policy has decided on here: it must not change between two arms."""
    async with WireClient(served.url) as client:
        rungs = [(int(b), int(n)) for b, n in (await client.get("/policy"))["table"]["rungs"]]
    await _set_table(served, rungs)
    return rungs


async def _set_table(served: Served, rungs: list[tuple[int, int]]) -> None:
    table = {str(batch_size): length for batch_size, length in rungs}
    async with WireClient(served.url) as client:
        await client.put_policy({"table": table} if table else "off")


def _merged(settings: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Groups of keys are joined."""
    joined = dict(settings)
    for name, value in more.items():
        joined[name] = {**joined.get(name, {}), **value} if isinstance(value, dict) else value
    return joined
