"""A replica on a virtual clock: an engine, and the ledger of what came in and went out."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from deployments.autoscaling.ledger import Ledger
from deployments.autoscaling.load import ReplicaLoad
from deployments.routing.books import PROMPT_SHARE
from deployments.simulate.costs import BLOCK_SIZE, Profile
from engine.config import DrafterConfig, EngineConfig
from engine.costed import TOKEN
from engine.errors import EngineFull, PromptTooLong
from engine.luck import Luck
from engine.quick_engine import QuickEngine, Told
from engine.request import FinishReason, Request, TokenDelta
from engine.simulate import VirtualClock
from policy.stats import StatsWindow
from policy.table import SpeculationTable

NOTHING = Told([], [], [])
Pace = tuple[tuple[tuple[int, float], ...], float]
"""Seconds a token by batch size, and seconds a prompt token."""


class SimulatedReplica:
    """Its steps are computed late: when somebody might wait for what has come of them. What comes
    in during a step waits for its end, as it does for a real engine's thread."""

    def __init__(
        self, number: int, profile: Profile, luck: Luck, table: SpeculationTable, now_s: float
    ) -> None:
        self.number = number
        self.name = f"replica-{number}"
        self.ready_s = now_s
        self.is_leaving = False
        self.is_report_due = False
        """At the end of the step under way."""
        self.reported_version = 0
        self.num_scheduled = 0
        """How often it was said anew when it is to be looked at: only the last time holds."""
        self._clock = VirtualClock()
        self._clock.advance_to(now_s)
        self._engine = QuickEngine(
            engine_config(profile),
            self._clock,
            profile.costs,
            luck,
            num_blocks=profile.num_blocks,
            max_model_len=profile.max_model_len,
            table=table,
        )
        self._now_s = now_s
        self._ledger = Ledger(lambda: self._now_s)
        self._max_num_seqs = profile.max_num_seqs
        self._inbox: list[Request] = []
        self._told = NOTHING
        """Of the last step, where requests ended in it that nobody was told of yet."""
        self._noted: dict[str, int] = {}
        """New tokens that the ledger knows of, by request with a first token."""
        self._max_tokens: dict[str, int] = {}

    def is_busy(self, now_s: float) -> bool:
        """Whether a step is under way; `advance` was called for this moment."""
        return self._clock() > now_s or bool(self._told.ended)

    @property
    def awaits_settling(self) -> bool:
        """At the end of the last step that was computed, before the next."""
        return bool(self._told.ended or self._inbox) or self.is_report_due

    @property
    def has_work(self) -> bool:
        return bool(self._told.ended or self._inbox) or self._engine.has_work

    @property
    def table_version(self) -> int:
        return self._engine.table.version

    def set_table(self, table: SpeculationTable) -> None:
        """From the next step on."""
        self._engine.set_table(table)

    def receive(self, request: Request, now_s: float) -> None:
        """A request has come; `advance` was called for this moment."""
        self._now_s = now_s
        self._inbox.append(request)
        self._max_tokens[request.request_id] = request.sampling.max_tokens
        self._ledger.enter((request,))

    def advance(self, now_s: float) -> Told:
        """Take the steps that begin until now, as far as one in which a request ends: the first
        tokens in them."""
        if self._told.ended or not self._engine.has_work or self._clock() > now_s:
            return NOTHING
        told = self._engine.advance(now_s)
        assert not told.ended or self._clock() >= now_s, "a request ended unseen"
        for delta in told.first:
            self._ledger.note(delta._replace(finish_reason=None))
            self._noted[delta.request_id] = len(delta.token_ids)
        if told.ended:
            self._told = told
        return told

    def settle(self, now_s: float) -> tuple[list[str], list[str]]:
        """Between two steps: requests that ended with the last one, and those of what has come
        since that are refused."""
        self._now_s = now_s
        told, self._told = self._told, NOTHING
        for request_id in told.ended:
            # Nothing ends before its limit here.
            more = self._max_tokens.pop(request_id) - self._noted.pop(request_id)
            self._ledger.note(TokenDelta(request_id, _tokens(more), FinishReason.LENGTH))
        was_idle = not self._engine.has_work
        refused = self._take_in()
        if was_idle:
            self._clock.advance_to(now_s)
        return told.ended, refused

    def look_again_s(self) -> float | None:
        """When what it does may matter to anybody: at the end of the last step computed where
        something waits for that, else not before a request can end. None: it has nothing to do."""
        if self.awaits_settling:
            return self._clock()
        if not self._engine.has_work:
            return None
        # A hair less, so that rounding makes nobody late.
        return self._clock() + (1 - 1e-9) * self._engine.least_seconds_to_end()

    def _take_in(self) -> list[str]:
        refused = []
        for request in self._inbox:
            try:
                self._engine.add(request)
            except (EngineFull, PromptTooLong):
                refused.append(request.request_id)
                self._ledger.leave((request,))
                del self._max_tokens[request.request_id]
        self._inbox.clear()
        return refused

    def _sync(self, outputs: Iterable[tuple[str, int]]) -> None:
        """Tell the ledger of new tokens since it was told last."""
        for request_id, num_tokens in outputs:
            more = num_tokens - self._noted.get(request_id, 0)
            if more:
                self._ledger.note(TokenDelta(request_id, _tokens(more)))
                self._noted[request_id] = num_tokens

    def drain(self, now_s: float) -> StatsWindow:
        """Between two steps: the counts since the last call."""
        self._now_s = now_s
        self._sync(self._engine.output_lengths())
        return self._engine.drain_stats()

    def outstanding_tokens(self, now_s: float) -> float:
        """As `LoadReport.outstanding_tokens`; after `drain`."""
        self._now_s = now_s
        work = self._ledger.work()
        return work.new_tokens + PROMPT_SHARE * work.prompt_tokens

    def load(self, now_s: float, pace: Pace) -> ReplicaLoad:
        """As `LoadReport.load`; after `drain`."""
        self._now_s = now_s
        status = self._engine.status()
        return ReplicaLoad(
            num_requests=status.num_running + status.num_waiting,
            num_running=status.num_running,
            kv_use=1.0 - status.num_free_blocks / status.num_blocks,
            max_num_seqs=self._max_num_seqs,
            seconds_per_token=pace[0],
            seconds_per_prompt_token=pace[1],
            **asdict(self._ledger.work()),
        )

    def check_integrity(self) -> None:
        self._engine.check_integrity()


def engine_config(profile: Profile) -> EngineConfig:
    """Of an engine without a model."""
    return EngineConfig(
        Path(),
        DrafterConfig(kind="none"),
        max_num_seqs=profile.max_num_seqs,
        max_draft_len=profile.max_draft_len,
        max_step_tokens=profile.max_step_tokens,
        block_size=BLOCK_SIZE,
    )


def _tokens(count: int) -> tuple[int, ...]:
    return (TOKEN,) * count
