"""How many replicas there are to be: a pure function of what was seen and what is remembered.

Work is counted in seconds of one replica at its best batch: the largest one at which a token takes
no longer than the target, its slots and its KV suffice. So many replicas are wanted, the fewest,
that
- what comes in (seconds of work a second) fills them to `FULL` at most, and
- what is there beyond their best batches, and beyond the prompts that they can compute within
  `target_ttft_ms`, is gone `catch_up_s` after the last of them has started.
They are raised after `upscale_delay_s`; work that piles up while a replica starts was expected, and
raises nothing. They are lowered to what would still be enough with `ROOM` to spare, at a somewhat
stricter target: to the most that was wanted, by that measure, during all of `downscale_delay_s`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from deployments.autoscaling.load import ReplicaLoad

FULL = 0.9
"""Share of a replica's time that work may take. Above it queues grow at the least disturbance."""
ROOM = 0.7
"""The same where a replica is to be given up. Between the two, nothing changes."""
STRICTER = 0.85
"""Of the target per token, where a replica is to be given up."""
MOST_KV_USE = 0.9
STALE_AFTER_S = 35.0
"""Three reports of a replica, at Serve's own pace, which were not heard of."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The configuration's, as in examples/config.yaml."""

    min_replicas: int = 1
    max_replicas: int = 1
    target_tpot_ms: float = 100.0
    target_ttft_ms: float = 2000.0
    upscale_delay_s: float = 2.0
    downscale_delay_s: float = 120.0
    start_s: float = 30.0
    catch_up_s: float = 60.0


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """A running replica."""

    load: ReplicaLoad | None
    """What it said last; None: nothing, or nothing that can be."""
    age_s: float = 0.0
    """Of that."""

    @property
    def is_known(self) -> bool:
        is_fresh = self.age_s <= STALE_AFTER_S
        return self.load is not None and is_fresh and self.load.is_paced


@dataclass(frozen=True, slots=True)
class Observation:
    now_s: float
    num_target: int
    """Replicas that there are to be, as was decided last."""
    replicas: Sequence[SeenReplica]
    """Those that run."""
    num_queued: float = 0.0
    """Requests that no replica has yet."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a decision needs of those before it. Lost with the controller: then nothing is lowered
    before `downscale_delay_s` have been watched again."""

    starting_since_s: float | None = None
    """Since when fewer replicas run than there are to be."""
    above_since_s: float | None = None
    """Since when more are wanted than there are to be."""
    above: int = 0
    """The fewest that were wanted since then."""
    watched_since_s: float | None = None
    """Since when all replicas were known, and none had to be added."""
    wanted: tuple[tuple[float, int], ...] = ()
    """(when last, how many) could be enough, rising in time and falling in number: the first is
    the most during the delay."""


@dataclass(frozen=True, slots=True)
class Verdict:
    num_replicas: int
    reason: str
    memory: Memory = field(default_factory=Memory)


def decide(seen: Observation, targets: Targets, memory: Memory) -> Verdict:
    """Never raises, whatever the numbers; the bounds hold, whatever is remembered."""
    verdict = _decide(seen, targets, memory)
    within = min(targets.max_replicas, max(targets.min_replicas, verdict.num_replicas))
    return replace(verdict, num_replicas=within)


def _decide(seen: Observation, targets: Targets, memory: Memory) -> Verdict:
    num_running = len(seen.replicas)
    memory = replace(
        memory,
        starting_since_s=None
        if num_running >= seen.num_target
        else _or(memory.starting_since_s, seen.now_s),
    )
    least, most = targets.min_replicas, targets.max_replicas
    held = min(most, max(least, seen.num_target))
    unknown = sum(not replica.is_known for replica in seen.replicas)
    loads = [replica.load for replica in seen.replicas if replica.load is not None]
    if not loads:
        # None runs: Serve itself starts one when a request waits. None has spoken: not idle.
        said = "no replica runs" if not num_running else "no replica has told its load"
        return Verdict(held, f"{held}: {said}", _unwatched(memory))
    left_to_start_s = targets.start_s
    if memory.starting_since_s is not None:
        left_to_start_s = max(0.0, targets.start_s - (seen.now_s - memory.starting_since_s))
    up = _Demand(loads, seen, targets, targets.target_tpot_ms / 1000, FULL, left_to_start_s)
    wanted = up.fewest(least, most)
    if wanted > held:
        return _raised(held, wanted, up, seen.now_s, targets, memory)
    memory = replace(memory, above_since_s=None, above=0)
    if unknown:
        reason = f"{held}: nothing fresh, or no pace yet, from {unknown} of {num_running} replicas"
        return Verdict(held, reason, _unwatched(memory))
    if num_running < held and left_to_start_s > 0:  # later, they may never find room to start
        reason = f"{held}: {held - num_running} of them starting; {up}"
        return Verdict(held, reason, _unwatched(memory))
    strict_s = STRICTER * targets.target_tpot_ms / 1000
    down = _Demand(loads, seen, targets, strict_s, ROOM, 0.0)
    enough = max(wanted, down.fewest(least, most))
    return _lowered(held, enough, down, seen.now_s, targets, memory)


def _raised(
    held: int, wanted: int, demand: "_Demand", now_s: float, targets: Targets, memory: Memory
) -> Verdict:
    since_s = _or(memory.above_since_s, now_s)
    above = wanted if memory.above_since_s is None else min(wanted, memory.above)
    memory = replace(_unwatched(memory), above_since_s=since_s, above=above)
    if now_s - since_s < targets.upscale_delay_s:
        return Verdict(held, f"{held}: {above} wanted; {demand}", memory)
    memory = replace(memory, above_since_s=None, above=0, starting_since_s=now_s)
    return Verdict(above, f"{held} -> {above}: {demand}", memory)


def _lowered(
    held: int, enough: int, demand: "_Demand", now_s: float, targets: Targets, memory: Memory
) -> Verdict:
    since_s = _or(memory.watched_since_s, now_s)
    # To whole seconds: the memory stays small, however often this is asked.
    at_s = float(math.floor(now_s))
    begin_s = now_s - targets.downscale_delay_s
    later = [(s, n) for s, n in memory.wanted if n > enough and s >= begin_s]
    wanted = (*later, (at_s, enough))
    memory = replace(memory, watched_since_s=since_s, wanted=wanted)
    most = wanted[0][1]
    if now_s - since_s < targets.downscale_delay_s or most >= held:
        return Verdict(held, f"{held}: {demand}", memory)
    return Verdict(most, f"{held} -> {most}: {demand}", memory)


class _Demand:
    """What there is to do, in seconds of a replica."""

    def __init__(
        self,
        loads: Sequence[ReplicaLoad],
        seen: Observation,
        targets: Targets,
        tpot_s: float,
        full: float,
        left_to_start_s: float,
    ) -> None:
        self._num_running = len(seen.replicas)
        self._num_target = seen.num_target
        self._start_s = targets.start_s
        self._left_to_start_s = left_to_start_s
        self._catch_up_s = targets.catch_up_s
        self._ttft_s = targets.target_ttft_ms / 1000
        self._full = full
        batches = [_best_batch(load, tpot_s) for load in loads]
        per_token = [
            load.seconds_at(batch) / batch for load, batch in zip(loads, batches, strict=True)
        ]
        paced = list(zip(loads, per_token, strict=True))
        self._batch = sum(batches) / len(batches)
        # Each of all replicas together: requests may go to others than a minute ago.
        self._inflow = max(
            sum(
                load.prompt_tokens_per_s * load.seconds_per_prompt_token
                + load.new_tokens_per_s * each
                for load, each in paced
            ),
            sum(
                load.recent_prompt_tokens_per_s * load.seconds_per_prompt_token
                + load.recent_new_tokens_per_s * each
                for load, each in paced
            ),
        )
        self._prompts_s = sum(load.prompt_tokens * load.seconds_per_prompt_token for load in loads)
        work_s = self._prompts_s + sum(load.new_tokens * each for load, each in paced)
        in_flight = sum(load.num_requests for load in loads)
        self._requests = in_flight + max(0.0, seen.num_queued)
        self._work_each_s = work_s / in_flight if in_flight else 0.0
        self._seconds_at_best = max(
            load.seconds_at(batch) for load, batch in zip(loads, batches, strict=True)
        )

    def fewest(self, least: int, most: int) -> int:
        return next((n for n in range(least, most) if self._is_enough(n)), most)

    def _is_enough(self, num_replicas: int) -> bool:
        if num_replicas == 0:
            return not self._requests and not self._inflow
        if self._inflow > self._full * num_replicas:
            return False
        spare_s = (num_replicas - self._inflow) * self._catch_up_s
        return self._beyond_s(num_replicas) + self._growth_s(num_replicas) <= spare_s

    def _beyond_s(self, num_replicas: int) -> float:
        """Work that exceeds what so many replicas do well."""
        waiting = max(0.0, self._requests - num_replicas * self._batch) * self._work_each_s
        return max(waiting, self._prompts_s - num_replicas * self._ttft_s)

    def _growth_s(self, num_replicas: int) -> float:
        """Work that piles up until so many replicas have started."""
        if num_replicas <= self._num_running:
            return 0.0
        start_s = self._left_to_start_s if num_replicas <= self._num_target else self._start_s
        return max(0.0, self._inflow - self._num_running) * start_s

    def __str__(self) -> str:
        return (
            f"{self._inflow:.2f} replicas' work comes in, {self._requests:.0f} requests; best "
            f"batch {self._batch:.0f} at {1000 * self._seconds_at_best:.0f} ms a token"
        )


def _best_batch(load: ReplicaLoad, tpot_s: float) -> float:
    """Sequences that a replica runs at once within the target, its slots and its KV."""
    batch = load.largest_batch(tpot_s)
    if load.kv_use > 0 and load.num_running > 0:
        batch = min(batch, load.num_running / load.kv_use * MOST_KV_USE)
    return max(1.0, batch)


def _unwatched(memory: Memory) -> Memory:
    return replace(memory, watched_since_s=None, wanted=())


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
