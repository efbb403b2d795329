"""What one replica tells Serve's controller: its ledger, its engine's status and its pace."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from deployments.autoscaling.ledger import CountedLoop, Ledger
from deployments.autoscaling.load import ReplicaLoad
from deployments.autoscaling.pace import Pace
from engine.core import EngineStatus
from engine.loop import EngineLoop
from policy.board import Introduction
from policy.stats import StatsWindow
from policy.table import SpeculationTable


class LoadReport:
    """Put together anew whenever it is asked for."""

    def __init__(self, max_num_seqs: int, introduction: Introduction | None) -> None:
        self._max_num_seqs = max_num_seqs
        self._ledger = Ledger()
        self._pace = Pace(max_num_seqs, introduction)

    def counted(self, loop: EngineLoop) -> CountedLoop:
        """The loop, with its requests counted here."""
        return CountedLoop(loop, self._ledger)

    def timed(self, drain_stats: Callable[[], StatsWindow]) -> Callable[[], StatsWindow]:
        """The same counts, looked at in passing."""

        def drain() -> StatsWindow:
            window = drain_stats()
            self._pace.observe(window, self._ledger.drain_computed())
            return window

        return drain

    def learn(self, learned: dict[str, Any]) -> None:
        self._pace.learn(learned)

    def speedup(self, batch_size: int, table: SpeculationTable) -> float | None:
        """See `Pace.speedup`."""
        return self._pace.speedup(batch_size, table)

    def load(self, status: EngineStatus, table: SpeculationTable) -> ReplicaLoad:
        """Of this moment."""
        work = self._ledger.work()
        return ReplicaLoad(
            num_requests=status.num_running + status.num_waiting,
            num_running=status.num_running,
            kv_use=1.0 - status.num_free_blocks / status.num_blocks,
            max_num_seqs=self._max_num_seqs,
            seconds_per_prompt_token=self._pace.seconds_per_prompt_token(),
            seconds_per_token=self._pace.seconds_per_token(table),
            **asdict(work),
        )

    def outstanding_tokens(self, prompt_share: float) -> float:
        """New ones, and those of prompts at so much of their weight."""
        work = self._ledger.work()
        return work.new_tokens + prompt_share * work.prompt_tokens
