"""Many replicas on one virtual clock: arrivals are routed, steps end, replicas report, the policy
decides, replicas are added and removed. All of it by the code that does so in service."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cluster.policy_channel import ChannelTimings
from deployments.autoscaling.decision import Memory, Observation, SeenReplica, Targets, decide
from deployments.autoscaling.load import ReplicaLoad
from deployments.autoscaling.pace import Pace
from deployments.routing.view import SeenRequest
from deployments.simulate.actor_load import ActorLoad
from deployments.simulate.costs import Profile
from deployments.simulate.outcome import Outcomes
from deployments.simulate.ranking import RankedBooks
from deployments.simulate.replica import SimulatedReplica
from deployments.simulate.traffic import Arrival
from engine.luck import AcceptanceOf, Luck
from engine.request import Request, SamplingParams
from policy.board import Introduction, PolicyBoard, Publication
from policy.boards import PolicyBoards
from policy.choice import PolicyChoice
from policy.stats import StatsWindow

REPORT_S = ChannelTimings().report_s
DECIDE_S = 2.0
"""Serve asks for a number of replicas more often; what replicas say of themselves comes as seldom
as this."""
_SNAPSHOT_S = 10.0
_EVENTS_BETWEEN_REPORTS = 100
"""Of progress: a person who wants no more is heard, however few requests come or none any more."""
_KIND = "simulated"
_MORE_TOKENS = tuple(range(2, 32_000))


class _Kind(IntEnum):
    """Of events at one moment, the first of these goes first."""

    LOOK = 0
    TABLE_IS_NEW = 1
    IS_READY = 2
    REPORT_IS_DUE = 3
    NUMBER_IS_DUE = 4


@dataclass(frozen=True, slots=True)
class Scaling:
    """How replicas come and go; `start_s` as it really is, whatever the targets say."""

    targets: Targets
    start_s: float


class Fleet:
    """One run. `replicas`: so many at the start, and for good unless there is a `scaling`."""

    def __init__(
        self,
        profile: Profile,
        policy: PolicyChoice,
        replicas: int,
        arrivals: Sequence[Arrival],
        acceptance: AcceptanceOf,
        *,
        seed: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        self.outcomes = Outcomes(arrivals)
        self.actor = ActorLoad()
        self.totals = StatsWindow()
        self.replica_seconds = 0.0
        self.sizes: list[tuple[float, int]] = []
        """(seconds, replicas there are to be) from then on."""
        self._profile = profile
        self._arrivals = arrivals
        self._luck = Luck(seed, acceptance)
        self._scaling = scaling
        self._memory = Memory()
        self._now_s = 0.0
        self._events: list[tuple[float, int, int, int]] = []
        """(seconds, kind, replica, how often it had been scheduled)"""
        self._sampling: dict[int, SamplingParams] = {}
        self._books = RankedBooks()
        self._replicas: dict[int, SimulatedReplica] = {}
        """All there are, those that start or leave included."""
        self._loads: dict[int, tuple[ReplicaLoad, float]] = {}
        self._num_made = 0
        self._target = replicas
        self._said = Introduction(
            _KIND, profile.name, profile.max_num_seqs, profile.max_draft_len, profile.calibration
        )
        # What the wall shows is of no matter to a board, but the first second is special to it.
        self._boards = PolicyBoards(policy, profile.max_draft_len, lambda: self._now_s)
        self._pace = Pace(profile.max_num_seqs, self._said) if scaling is not None else None
        self._paced_at_s = 0.0
        self._paced = self._pace_now() if self._pace is not None else ((), 0.0)
        self._queued: list[int] = []
        """Requests that came while no replica was there."""
        for _ in range(replicas):
            self._start_replica(0.0)
        self._published = self._board.published
        self._resize(0.0)
        if scaling is not None:
            self._schedule(DECIDE_S, _Kind.NUMBER_IS_DUE, -1)

    # ---- running

    def run(self, report: Callable[[float], None] = lambda share: None) -> None:
        """To the end; `report` is told the share of the requests that have come. It may raise, and
        what was simulated until then is counted as that of a whole run."""
        try:
            self._run(report)
        finally:
            self._close()

    def _run(self, report: Callable[[float], None]) -> None:
        arrivals, events, count = self._arrivals, self._events, len(self._arrivals)
        number, every, num_events = 0, max(1, count // 1000), 0
        while number < count or self.outcomes.num_open:
            if number < count and (not events or arrivals[number].at_s < events[0][0]):
                self._now_s = arrivals[number].at_s
                self.outcomes.num_arrived += 1
                self._route(number)
                number += 1
                if number % every == 0:
                    report(number / count)
                continue
            num_events += 1
            if num_events % _EVENTS_BETWEEN_REPORTS == 0:
                report(number / count)
            self._now_s, kind, replica, serial = heapq.heappop(events)
            if kind == _Kind.LOOK:
                self._look(replica, serial)
            elif kind == _Kind.REPORT_IS_DUE:
                self._report_due(replica)
            elif kind == _Kind.TABLE_IS_NEW:
                self._hand_out_table()
            elif kind == _Kind.IS_READY:
                self._is_ready(self._replicas[replica])
            else:
                self._decide_number()

    def _close(self) -> None:
        """What was counted and not reported yet; after a stop the steps that begin until now, too.
        A replica that has not started by now was none."""
        for replica in self._replicas.values():
            self._advance(replica)
            self.totals.merge_totals(replica.drain(self._now_s))
            self.replica_seconds += max(0.0, self._now_s - replica.ready_s)

    def _schedule(self, at_s: float, kind: _Kind, replica: int, serial: int = 0) -> None:
        heapq.heappush(self._events, (at_s, int(kind), replica, serial))

    # ---- requests

    def _route(self, number: int) -> None:
        arrival = self._arrivals[number]
        seen = SeenRequest(arrival.prompt_tokens)
        chosen = self._books.best(seen)
        if chosen is None:
            self._queued.append(number)
            return
        request = self._request(number, arrival)
        self._books.send(request.request_id, chosen, seen)
        replica = self._replicas[chosen]
        self._advance(replica)
        replica.receive(request, self._now_s)
        if not replica.is_busy(self._now_s):
            self._settle(replica)
        self._look_again(replica)

    def _request(self, number: int, arrival: Arrival) -> Request:
        """Its prompt begins as no other does."""
        sampling = self._sampling.get(arrival.new_tokens)
        if sampling is None:
            sampling = SamplingParams(
                max_tokens=arrival.new_tokens, temperature=0.0, seed=0, ignore_eos=True
            )
            self._sampling[arrival.new_tokens] = sampling
        length = arrival.prompt_tokens
        own = (1 + number % 31_999, 1 + number // 31_999)
        prompt = (*own, *_MORE_TOKENS[: max(0, length - 2)])[:length]
        return Request(str(number), prompt, sampling)

    def _look(self, number: int, serial: int) -> None:
        replica = self._replicas.get(number)
        if replica is None or serial != replica.num_scheduled:
            return  # it was looked at since, or is gone
        if replica.awaits_settling:
            self._settle(replica)
        else:
            self._advance(replica)
        self._look_again(replica)

    def _advance(self, replica: SimulatedReplica) -> None:
        told = replica.advance(self._now_s)
        for delta, at_s in zip(told.first, told.first_s, strict=True):
            self.outcomes.first(int(delta.request_id), at_s)

    def _settle(self, replica: SimulatedReplica) -> None:
        """Between two steps of it: who ended is told, who came is taken in, what is due reported;
        the next step begins."""
        ended, refused = replica.settle(self._now_s)
        for request_id in ended:
            self.outcomes.ended(int(request_id), self._now_s)
            self._books.end(request_id)
        for request_id in refused:
            self._books.end(request_id)
            self.outcomes.num_refused += 1
        if replica.is_report_due:
            self._report(replica)
        self._advance(replica)

    def _look_again(self, replica: SimulatedReplica) -> None:
        at_s = replica.look_again_s()
        if at_s is not None:
            replica.num_scheduled += 1
            at_s = max(at_s, self._now_s)
            self._schedule(at_s, _Kind.LOOK, replica.number, replica.num_scheduled)
        elif replica.is_leaving:
            self._stopped(replica)

    # ---- policy

    def _report_due(self, number: int) -> None:
        replica = self._replicas.get(number)
        if replica is None:
            return
        self._schedule(self._now_s + REPORT_S, _Kind.REPORT_IS_DUE, number)
        self._ask_report(replica)

    def _ask_report(self, replica: SimulatedReplica) -> None:
        """Between two steps: now, or when the one under way ends."""
        self._advance(replica)
        replica.is_report_due = True
        if not replica.is_busy(self._now_s):
            self._settle(replica)
        self._look_again(replica)

    def _report(self, replica: SimulatedReplica) -> None:
        replica.is_report_due = False
        window = replica.drain(self._now_s)
        self._books.hear(replica.number, replica.outstanding_tokens(self._now_s))
        if self._pace is not None:
            self._loads[replica.number] = replica.load(self._now_s, self._paced), self._now_s
        if not window.steps and replica.reported_version == window.table_version:
            return  # as the channel, which has nothing to say then
        replica.reported_version = window.table_version
        self.totals.merge_totals(window)
        self.actor.reported(window)
        if self._boards.observe(replica.name, window):
            self._schedule(self._now_s, _Kind.TABLE_IS_NEW, -1)
        if self._pace is not None and self._now_s - self._paced_at_s >= _SNAPSHOT_S:
            learned = self._boards.of(replica.name).snapshot(replica.name)
            if learned is not None:
                self._pace.learn(learned)
            self._paced = self._pace_now()

    def _hand_out_table(self) -> None:
        """All polls are answered at once. As the channel does, each replica then reports, to tell
        what is in force."""
        self._published = self._board.published
        self.actor.published(self._published, len(self._replicas))
        for replica in list(self._replicas.values()):
            self._advance(replica)
            replica.set_table(self._published.table)
            self._ask_report(replica)

    @property
    def _board(self) -> PolicyBoard:
        return self._boards.of("replica-0")

    def _pace_now(self) -> tuple[tuple[tuple[int, float], ...], float]:
        """Replicas of one kind are told the same: it is worked out once for all."""
        assert self._pace is not None
        self._paced_at_s = self._now_s
        table = self._board.published.table
        return self._pace.seconds_per_token(table), self._pace.seconds_per_prompt_token()

    @property
    def published(self) -> Publication:
        """In force at the end."""
        return self._published

    @property
    def history(self) -> list[tuple[float, str, tuple[tuple[int, int], ...]]]:
        """(seconds, why, rungs) of each table."""
        return [(entry.at_unix_s, entry.why, entry.rungs) for entry in self._board.history]

    # ---- replicas

    def _start_replica(self, ready_s: float) -> None:
        number = self._num_made
        self._num_made += 1
        name = f"replica-{number}"
        self._boards.introduce(name, self._said)
        table = self._boards.of(name).published.table
        replica = SimulatedReplica(number, self._profile, self._luck, table, ready_s)
        self._replicas[number] = replica
        # Reports come evenly, however the replicas were started.
        phase = (number * 0.6180339887498949) % 1.0
        self._schedule(ready_s + REPORT_S * phase, _Kind.REPORT_IS_DUE, number)

    def _is_ready(self, replica: SimulatedReplica) -> None:
        if replica.is_leaving:
            return
        self._offer()
        queued, self._queued = self._queued, []
        for number in queued:
            self._route(number)

    def _offer(self) -> None:
        """Tell the router of the replicas that take requests."""
        self._books.keep_only([replica.number for replica in self._running()])

    def _running(self) -> list[SimulatedReplica]:
        return [
            replica
            for replica in self._replicas.values()
            if replica.ready_s <= self._now_s and not replica.is_leaving
        ]

    def _decide_number(self) -> None:
        assert self._scaling is not None
        self._schedule(self._now_s + DECIDE_S, _Kind.NUMBER_IS_DUE, -1)
        running = self._running()
        nothing = (None, self._now_s)
        told = [self._loads.get(replica.number, nothing) for replica in running]
        seen = Observation(
            now_s=self._now_s,
            num_target=self._target,
            replicas=[SeenReplica(load, self._now_s - at_s) for load, at_s in told],
            num_queued=len(self._queued),
        )
        verdict = decide(seen, self._scaling.targets, self._memory)
        self._memory = verdict.memory
        wanted = verdict.num_replicas
        if not running and self._queued:
            wanted = max(1, wanted)  # Serve's own rule, which asks no policy
        if wanted != self._target:
            self._target = wanted
            self._resize(self._scaling.start_s)

    def _resize(self, start_s: float) -> None:
        self.sizes.append((self._now_s, self._target))
        staying = [r for r in self._replicas.values() if not r.is_leaving]
        for _ in range(self._target - len(staying)):
            self._start_replica(self._now_s + start_s)
            self._schedule(self._now_s + start_s, _Kind.IS_READY, self._num_made - 1)
        for replica in staying[self._target :]:
            replica.is_leaving = True
            if not replica.has_work:
                self._stopped(replica)
        self._offer()

    def _stopped(self, replica: SimulatedReplica) -> None:
        """It has answered all that it had."""
        self.replica_seconds += max(0.0, self._now_s - replica.ready_s)
        self.totals.merge_totals(replica.drain(self._now_s))
        del self._replicas[replica.number]
        self._loads.pop(replica.number, None)

    def as_json(self) -> dict[str, Any]:
        """Of speculation, replicas and the policy actor."""
        totals, seconds = self.totals, max(1e-9, self._now_s)
        mean_replicas = self.replica_seconds / seconds
        return {
            "replicas": {
                "mean": mean_replicas,
                "most": max(size for _, size in self.sizes),
                "seconds": self.replica_seconds,
            },
            "steps": totals.steps,
            "tokens_per_round": totals.emitted_tokens / max(1, totals.rounds),
            "emitted_tokens": totals.emitted_tokens,
            "drafted_tokens": totals.drafted_tokens,
            "accepted_tokens": totals.accepted_tokens,
            "policy_actor": self.actor.as_json(seconds, mean_replicas),
            "tables": [
                {"at_s": at_s, "why": why, "rungs": [list(rung) for rung in rungs]}
                for at_s, why, rungs in self.history
            ],
        }
