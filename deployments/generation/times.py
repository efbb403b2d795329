"""When things happened to a request: what is told of it at its end."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.metrics.definitions import Outcome
from cluster.metrics.requests import RequestRecord
from deployments.generation.errors import DeadlinePassed
from engine.errors import EngineFull, RequestError
from engine.request import TokenDelta


@dataclass(slots=True)
class _Choice:
    first_s: float
    """When its first tokens came."""
    num_first: int
    """As many as came then."""
    last_s: float
    num_tokens: int


class RequestTimes:
    """Of one request, from its arrival on. Belongs to one event loop."""

    def __init__(self, arrived_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds; `arrived_s` is of the same."""
        self._arrived_s = arrived_s
        self._clock = clock
        self._choices: dict[str, _Choice] = {}
        self._queue_s: list[float] = []

    def note(self, delta: TokenDelta) -> None:
        """A delta has come, of any of its choices."""
        num_tokens = len(delta.token_ids)
        if not num_tokens:
            return
        now = self._clock()
        choice = self._choices.get(delta.request_id)
        if choice is None:
            self._choices[delta.request_id] = _Choice(now, num_tokens, now, num_tokens)
            self._queue_s.append(delta.queue_seconds)
        else:
            choice.last_s = now
            choice.num_tokens += num_tokens

    def record(self, outcome: Outcome) -> RequestRecord:
        """What came of the request."""
        choices = self._choices.values()
        if not choices:
            return RequestRecord(outcome)
        return RequestRecord(
            outcome,
            seconds=max(choice.last_s for choice in choices) - self._arrived_s,
            first_token_s=min(choice.first_s for choice in choices) - self._arrived_s,
            queue_s=tuple(self._queue_s),
            per_token_s=tuple(
                (choice.last_s - choice.first_s) / (choice.num_tokens - choice.num_first)
                for choice in choices
                if choice.num_tokens > choice.num_first
            ),
        )


def outcome_of(error: BaseException) -> Outcome:
    """What a request came to that ended with `error`."""
    match error:
        case EngineFull():
            return Outcome.FULL
        case RequestError():
            return Outcome.INVALID
        case DeadlinePassed():
            return Outcome.DEADLINE
        case Exception():
            return Outcome.FAILED
        case _:  # closed or cancelled
            return Outcome.GONE
