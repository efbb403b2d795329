"""When tokens came, and what is told of it."""

import pytest

from cluster.metrics.definitions import Outcome
from cluster.metrics.requests import RequestRecord
from deployments.generation.errors import DeadlinePassed, GenerationFailed
from deployments.generation.times import RequestTimes, outcome_of
from engine.errors import EngineDead, EngineFull, OverShare, PromptTooLong, RequestError
from engine.request import TokenDelta


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_times_are_those_of_the_tokens() -> None:
    clock = Clock()
    times = RequestTimes(arrived_s=99.0, clock=clock)
    times.note(TokenDelta("a"))  # prompt log-probabilities, say
    clock.now_s = 101.0
    times.note(TokenDelta("a", (1,), queue_seconds=0.25))
    clock.now_s = 102.0
    times.note(TokenDelta("b", (1, 2), queue_seconds=0.5))
    clock.now_s = 103.0
    times.note(TokenDelta("a", (2, 3, 4)))
    clock.now_s = 104.0
    times.note(TokenDelta("a", (5,)))
    clock.now_s = 200.0
    assert times.record(Outcome.FINISHED) == RequestRecord(
        Outcome.FINISHED,
        seconds=5.0,
        first_token_s=2.0,
        queue_s=(0.25, 0.5),
        per_token_s=(0.75,),  # four tokens in the three seconds after the first; b got no more
    )


def test_a_request_without_tokens_has_no_times() -> None:
    times = RequestTimes(arrived_s=0.0, clock=Clock())
    assert times.record(Outcome.DEADLINE) == RequestRecord(Outcome.DEADLINE)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (EngineFull("full", 1), Outcome.FULL),
        (OverShare("full", 1), Outcome.FULL),
        (RequestError("n", "n"), Outcome.INVALID),
        (PromptTooLong("prompt", "long"), Outcome.INVALID),
        (DeadlinePassed("late"), Outcome.DEADLINE),
        (GenerationFailed("no"), Outcome.FAILED),
        (EngineDead("dead"), Outcome.FAILED),
        (ValueError("ours"), Outcome.FAILED),
        (GeneratorExit(), Outcome.GONE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
def test_outcomes(error: BaseException, outcome: Outcome) -> None:
    assert outcome_of(error) == outcome
