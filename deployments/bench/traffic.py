"""The same arrivals against several policies, segment by segment in turns.

A segment is answered to its end by one arm before the next one gets it, and the arms' order moves
on from segment to segment, so that a slow minute of the machine hits all alike. All arms answer the
same prompts, at temperature 0 with the same words; each request has a cache salt of its own, so
that none finds prompts computed by another.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deployments.bench.answers import Answer
from deployments.bench.app import Server
from deployments.bench.arms import ADAPTIVE, TABLE, Arm, frozen_table
from deployments.bench.arrivals import Segment, Setting
from deployments.bench.client import Ask, Client
from deployments.bench.prompts import Fitting
from deployments.bench.work import Work

_TABLE_KEY = "static table"


@dataclass(frozen=True, slots=True)
class Turn:
    """One arm's answers to one segment."""

    setting: Setting
    segment: int
    arm: Arm

    @property
    def key(self) -> str:
        return f"{self.setting.name} {self.setting.digest}, segment {self.segment}, {self.arm.name}"

    def __str__(self) -> str:
        return f"{self.setting.name}, segment {self.segment + 1}, {self.arm.name}"


def turns(settings: Sequence[Setting], arms: Sequence[Arm]) -> Iterator[Turn]:
    """In their order: every setting's first segment, then every setting's second one, ..."""
    for segment in range(max(len(setting.segments) for setting in settings)):
        for number, setting in enumerate(settings):
            if segment < len(setting.segments):
                first = (segment + number) % len(arms)
                for arm in (*arms[first:], *arms[:first]):
                    yield Turn(setting, segment, arm)


@dataclass(frozen=True, slots=True)
class Body:
    """What requests have in common."""

    model: str
    temperature: float
    ignore_eos: bool
    """Servers that don't know the field may refuse it; without it, answers end where they end."""
    salted: bool

    def of(self, text: str, new_tokens: int, salt: str) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": new_tokens,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.ignore_eos else {}),
            **({"cache_salt": salt} if self.salted else {}),
        }


class Measuring:
    """Plays turns and keeps what came of them."""

    def __init__(
        self,
        server: Server,
        client: Client,
        fitting: Fitting,
        body: Body,
        work: Work,
        report: Callable[[str, float], None],
        stopped: Callable[[], bool],
    ) -> None:
        """`report` is told a turn's name and how much of it is done; `stopped` is asked whether to
        give up."""
        self._server = server
        self._client = client
        self._fitting = fitting
        self._body = body
        self._work = work
        self._report = report
        self._stopped = stopped

    def warm_up(
        self, segment: Segment, static: dict[str, Any] | None, *, sets_policy: bool
    ) -> None:
        """Have the adaptive policy see traffic, none of which counts. `static` is the table of the
        arm of that name; None: the one that is in force then. Raises Stopped or ConfigError."""
        if sets_policy:
            self._server.set_policy(ADAPTIVE)
        if segment:
            self._play(segment, "warming up", "warm-up")
        if sets_policy and _TABLE_KEY not in self._work:
            described = self._server.set_policy(ADAPTIVE)
            self._work.add(_TABLE_KEY, {"policy": static or frozen_table(described)})

    def measure(self, turn: Turn) -> None:
        """Raises Stopped, and nothing of the turn is kept; ConfigError when the policy can't be
        set."""
        policy = self._work[_TABLE_KEY]["policy"] if turn.arm.name == TABLE else turn.arm.policy
        if policy is not None:
            self._server.set_policy(policy)
        answers = self._play(turn.setting.segments[turn.segment], str(turn), turn.key)
        self._work.add(turn.key, {"answers": [asdict(answer) for answer in answers]})

    def _play(self, segment: Segment, what: str, salt: str) -> list[Answer]:
        self._report(what, 0.0)
        asks = [
            Ask(
                one.at_s,
                self._body.of(
                    self._fitting.text(one.prompt, one.prompt_tokens),
                    one.new_tokens,
                    f"{salt}, {index}",
                ),
            )
            for index, one in enumerate(segment)
        ]
        return asyncio.run(
            self._client.play(
                asks, lambda done: self._report(what, done / len(asks)), self._stopped
            )
        )


def answers_of(work: Work, setting: Setting, arm: Arm) -> dict[int, list[Answer]]:
    """By segment, those that were measured."""
    found = {}
    for segment in range(len(setting.segments)):
        key = Turn(setting, segment, arm).key
        if key in work:
            found[segment] = [Answer(**answer) for answer in work[key]["answers"]]
    return found


def static_table(work: Work) -> Mapping[str, Any] | None:
    """Of the arm of that name, once it is known."""
    return work[_TABLE_KEY]["policy"] if _TABLE_KEY in work else None
