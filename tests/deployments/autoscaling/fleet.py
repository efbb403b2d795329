"""Replicas without engines on a virtual clock, under the autoscaling decision."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from deployments.autoscaling.arrivals import Arrivals
from deployments.autoscaling.decision import Memory, Observation, SeenReplica, Targets, decide
from deployments.autoscaling.load import ReplicaLoad

TICK_S = 0.25
SLOTS = 32
REPORT_S = 2.0
PROMPT_TOKENS, NEW_TOKENS = 100, 200
SECONDS_PER_PROMPT_TOKEN = 0.0005
TABLE = ((1, 0.020), (8, 0.034), (16, 0.050), (32, 0.082))
"""Seconds a token by batch size: 18 ms and 2 ms a sequence. The target of 50 ms is met up to 16."""
TARGETS = Targets(min_replicas=1, max_replicas=8, target_tpot_ms=50.0)


def requests_per_second(replicas: float) -> float:
    """That fill so many replicas at their best batch."""
    work_s = PROMPT_TOKENS * SECONDS_PER_PROMPT_TOKEN + NEW_TOKENS * 0.050 / 16
    return replicas / work_s


@dataclass(slots=True)
class Work:
    prompt: float = PROMPT_TOKENS
    new: float = NEW_TOKENS


@dataclass(slots=True)
class Replica:
    ready_s: float
    work: list[Work] = field(default_factory=list)
    arrivals: Arrivals = field(default_factory=Arrivals)
    report: ReplicaLoad | None = None
    reported_s: float = 0.0
    is_silent: bool = False

    def advance(self) -> None:
        left_s = TICK_S
        for work in self.work:
            done = min(work.prompt, left_s / SECONDS_PER_PROMPT_TOKEN)
            work.prompt -= done
            left_s -= done * SECONDS_PER_PROMPT_TOKEN
        decoding = [work for work in self.work[:SLOTS] if not work.prompt]
        if decoding:
            pace = ReplicaLoad(seconds_per_token=TABLE).seconds_at(len(decoding))
            for work in decoding:
                work.new -= left_s / pace
        self.work = [work for work in self.work if work.new > 0]

    def tell(self, now_s: float) -> None:
        if self.is_silent or now_s - self.reported_s < REPORT_S:
            return
        mean, recent = self.arrivals.mean(now_s), self.arrivals.recent(now_s)
        running = min(SLOTS, len(self.work))
        self.reported_s = now_s
        self.report = ReplicaLoad(
            num_requests=len(self.work),
            num_running=running,
            prompt_tokens=sum(work.prompt for work in self.work),
            new_tokens=sum(work.new for work in self.work),
            prompt_tokens_per_s=mean * PROMPT_TOKENS,
            new_tokens_per_s=mean * NEW_TOKENS,
            recent_prompt_tokens_per_s=recent * PROMPT_TOKENS,
            recent_new_tokens_per_s=recent * NEW_TOKENS,
            kv_use=running / 64,
            max_num_seqs=SLOTS,
            seconds_per_prompt_token=SECONDS_PER_PROMPT_TOKEN,
            seconds_per_token=TABLE,
        )


class Fleet:
    """Runs as many replicas as are decided; new ones start for `start_s`. Arrivals are random."""

    def __init__(
        self, targets: Targets = TARGETS, *, start_s: float = 30.0, first: int = 1, seed: int = 0
    ) -> None:
        self.targets = targets
        self.start_s = start_s
        self.now_s = 1000.0
        self.memory = Memory()
        self.replicas = [Replica(0.0) for _ in range(first)]
        self.target = first
        self.targets_over_time: list[int] = []
        self.queued: list[Work] = []
        self._random = random.Random(seed)
        self._due_s = self._random.expovariate(1.0)

    @property
    def running(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.ready_s <= self.now_s]

    def run(self, seconds: float, load: float | Callable[[float], float]) -> list[int]:
        """Under a load, in replicas' worth (or a function of the seconds since the call): the
        numbers decided, one a tick."""
        began_s, begun = self.now_s, len(self.targets_over_time)
        while self.now_s - began_s < seconds:
            now = load(self.now_s - began_s) if callable(load) else load
            self._due_s -= requests_per_second(now) * TICK_S
            while self._due_s <= 0:
                self._due_s += self._random.expovariate(1.0)
                self._route(Work(new=NEW_TOKENS * self._random.uniform(0.5, 1.5)))
            for replica in self.running:
                replica.advance()
                replica.tell(self.now_s)
            self._decide()
            self.now_s += TICK_S
        return self.targets_over_time[begun:]

    def burst(self, count: int) -> None:
        for _ in range(count):
            self._route(Work())

    def forget(self) -> None:
        """As when the controller restarts: neither reports nor the memory are left."""
        self.memory = Memory()
        for replica in self.replicas:
            replica.report = None

    def _route(self, work: Work) -> None:
        if not self.running:
            self.queued.append(work)
            return
        chosen = min(self.running, key=lambda replica: len(replica.work))
        chosen.work.append(work)
        chosen.arrivals.add(self.now_s, 1)

    def _decide(self) -> None:
        queued, self.queued = self.queued, []
        for work in queued:
            self._route(work)
        if not self.running and self.queued:
            self._scale(max(1, self.target))  # Serve's own rule, which asks no policy
            return
        seen = Observation(
            now_s=self.now_s,
            num_target=self.target,
            replicas=[
                SeenReplica(replica.report, self.now_s - replica.reported_s)
                for replica in self.running
            ],
            num_queued=len(self.queued),
        )
        verdict = decide(seen, self.targets, self.memory)
        self.memory = verdict.memory
        self._scale(verdict.num_replicas)

    def _scale(self, target: int) -> None:
        while len(self.replicas) < target:
            self.replicas.append(Replica(self.now_s + self.start_s, reported_s=self.now_s))
        while len(self.replicas) > target:
            gone = self.replicas.pop()
            for work in gone.work:
                self._route(work)  # Serve lets it finish there; here it is as much work elsewhere
        self.target = target
        self.targets_over_time.append(target)
