"""What became of a request, as its client saw it. Pure.

A *try* is one HTTP exchange. A client that was told to come again, or whose connection broke, tries
again as the SDKs do. Its request is *broken* if the first try did not bring the whole right answer,
and *lost* if none did. Of a fault behind the proxy nobody should see anything: a request that is
merely broken counts there. The proxy itself holds the clients' connections, which end with it
whatever is behind it, so what counts there is whether asking again helped.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

TOO_BUSY = (429, 503)


class Outcome(StrEnum):
    """Of a try."""

    COMPLETE = "complete"
    WRONG = "wrong text"
    """Complete, but not what the same request gets when nothing happens."""
    CUT = "cut"
    """The answer began and did not end as it should."""
    NO_CONNECTION = "no connection"
    """It broke, or was refused, before an answer began."""
    BUSY = "told to come again"
    REFUSED = "refused"
    """Any other 4xx."""
    FAILED = "failed"
    """Any other status, or an error event in a stream."""
    LEFT = "client left"
    """By its own will."""


AGAIN = frozenset({Outcome.CUT, Outcome.NO_CONNECTION, Outcome.BUSY, Outcome.FAILED})
"""After these a client asks again."""


@dataclass(frozen=True, slots=True)
class Try:
    outcome: Outcome
    text: str = ""
    ttft_s: float | None = None
    """From sending the request to the first event, of a stream."""
    seconds: float = 0.0
    """To the end of the answer."""
    num_tokens: int = 0
    """New ones, as the server's usage says."""
    detail: str = ""
    """In words, what was not as it should be."""
    retry_s: float | None = None
    """What the server said in Retry-After."""


@dataclass(frozen=True, slots=True)
class Story:
    """A request's tries, one at least."""

    tries: tuple[Try, ...]

    @property
    def has_left(self) -> bool:
        return self.tries[-1].outcome is Outcome.LEFT

    @property
    def is_broken(self) -> bool:
        return self.tries[0].outcome not in (Outcome.COMPLETE, Outcome.LEFT)

    @property
    def is_lost(self) -> bool:
        return self.tries[-1].outcome not in (Outcome.COMPLETE, Outcome.LEFT)


def judge(text: str, finish_reason: str | None, expected: str | None) -> Outcome:
    """Of an answer that ended without an error; `expected`: None if any text will do."""
    if finish_reason is None:
        return Outcome.CUT
    if expected is not None and text != expected:
        return Outcome.WRONG
    return Outcome.COMPLETE


def outcome_of_status(status: int) -> Outcome:
    """Of one that is not 200."""
    if status in TOO_BUSY:
        return Outcome.BUSY
    return Outcome.REFUSED if 400 <= status < 500 else Outcome.FAILED


@dataclass(frozen=True, slots=True)
class Tally:
    """Of requests that went on to their end."""

    requests: int
    broken: int
    lost: int
    wrong: int
    """Tries that ended with another text; each is among the broken or the lost too."""
    tries: dict[str, int]
    """By outcome."""

    @classmethod
    def of(cls, stories: Iterable[Story]) -> "Tally":
        stories = list(stories)
        stayed = [story for story in stories if not story.has_left]
        tries = Counter(one.outcome for story in stories for one in story.tries)
        return cls(
            requests=len(stayed),
            broken=sum(story.is_broken for story in stayed),
            lost=sum(story.is_lost for story in stayed),
            wrong=tries[Outcome.WRONG],
            tries={outcome.value: count for outcome, count in sorted(tries.items())},
        )

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.requests + other.requests,
            self.broken + other.broken,
            self.lost + other.lost,
            self.wrong + other.wrong,
            dict(Counter(self.tries) + Counter(other.tries)),
        )


NOTHING = Tally(0, 0, 0, 0, {})
