"""Arms that take turns, so that a slow minute of the machine hits all alike."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.progress import Begin
from benchmarks.service.asks import Asks, Shape
from benchmarks.service.closed_loop import Ask, Round, closed_loop
from deployments.bench.results import Spread


@dataclass(frozen=True, slots=True)
class Arm:
    ask: Ask
    stream: bool


async def interleaved(
    arms: Mapping[str, Arm],
    asks: Asks,
    shape: Shape,
    *,
    concurrency: int,
    first: int,
    repeats: int,
    begin: Begin,
    rounds: dict[str, list[Round]],
) -> None:
    """Adds to `rounds`, of which each arm gets `repeats`; one before them warms up. `first`: the
    number of the first round, to be used once in a run."""
    for repeat in range(-1, repeats):
        begin(f"concurrency {concurrency}, round {repeat + 1} of {repeats}")
        order = list(enumerate(arms.items()))
        for number, (name, arm) in order if repeat % 2 else reversed(order):
            bodies = asks.round(first + repeat + 1, number, shape, stream=arm.stream)
            done = await closed_loop(arm.ask, bodies, concurrency)
            if repeat >= 0:
                rounds.setdefault(name, []).append(done)


def ttft_ms(done: Round) -> float:
    """The median."""
    times = [one.ttft_s for one in done.tries if one.ttft_s is not None]
    return 1e3 * Spread.of(times).median


def added_ms(more: list[Round], less: list[Round]) -> Spread:
    """Of medians to the first token, round by round."""
    pairs = zip(more, less, strict=False)
    return Spread.of([ttft_ms(one) - ttft_ms(other) for one, other in pairs])


def lost_share(slower: list[Round], faster: list[Round]) -> Spread:
    """Of the tokens a second of `faster`, round by round: what `slower` does not reach."""
    pairs = zip(slower, faster, strict=False)
    return Spread.of([1 - one.tokens_per_second / other.tokens_per_second for one, other in pairs])
