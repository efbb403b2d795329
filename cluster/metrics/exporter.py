"""What state a replica's engine and policy are in, as metrics.

It is looked at about once a second, on the event loop: the engine's thread does nothing for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.metrics import definitions as defined
from cluster.metrics.instruments import Instruments
from cluster.metrics.metric import Metric
from cluster.policy_channel import ChannelStatus
from engine.core import EngineStatus
from policy.stats import told_sizes
from policy.table import SpeculationTable

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
"""Ray drops a gauge that was not set for twice its own period, `metrics_report_interval_ms`."""
_SPEEDUPS_EVERY = 5
"""Periods: the cost model is asked for every batch size, and changes slowly."""

_STATUS_COUNTERS: tuple[tuple[Metric, Callable[[EngineStatus], int]], ...] = (
    (defined.PROMPT_TOKENS, lambda status: status.num_prompt_tokens),
    (defined.NUM_PREEMPTIONS, lambda status: status.num_preemptions),
    (defined.PREFIX_CACHE_QUERIES, lambda status: status.prefix_cache_queries),
    (defined.PREFIX_CACHE_HITS, lambda status: status.prefix_cache_hits),
)
_STATUS_GAUGES: tuple[tuple[Metric, Callable[[EngineStatus], int]], ...] = (
    (defined.NUM_REQUESTS_RUNNING, lambda status: status.num_running),
    (defined.NUM_REQUESTS_WAITING, lambda status: status.num_waiting),
    (defined.WAITING_TOKENS, lambda status: status.num_waiting_tokens),
    (defined.BATCH_SIZE, lambda status: status.num_decoding),
    (defined.KV_BLOCKS, lambda status: status.num_blocks),
    (defined.KV_BLOCKS_USED, lambda status: status.num_blocks - status.num_free_blocks),
    (defined.KV_BLOCKS_CACHED, lambda status: status.num_cached_blocks),
    (defined.DRAFT_LENGTH_IN_FORCE, lambda status: status.draft_len),
    (defined.TABLE_VERSION, lambda status: status.table_version),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What is looked at. All are asked on the event loop, and answer at once."""

    engine: Callable[[], EngineStatus]
    channel: Callable[[], ChannelStatus]
    speedup: Callable[[int, SpeculationTable], float | None]
    """Tokens a second at a batch size with the table's lengths over those with none."""
    calibrated_at_unix_s: Callable[[], float | None]


class MetricsExporter:
    """Of one replica. All methods belong to one event loop."""

    def __init__(
        self,
        instruments: Instruments,
        sources: Sources,
        max_num_seqs: int,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._tell = instruments
        self._sources = sources
        self._sizes = told_sizes(max_num_seqs)
        self._unix_s = unix_s
        self._counted = dict.fromkeys((metric.name for metric, _ in _STATUS_COUNTERS), 0)
        """Of the engine's own counts: what was exported."""
        self._speedups: dict[int, float] = {}
        self._speedups_of: SpeculationTable | None = None
        self._speedups_age = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look. Needs a running event loop."""
        self._task = asyncio.create_task(self._run(), name="metrics")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look(self) -> None:
        """Export the state of this moment."""
        status, channel = self._sources.engine(), self._sources.channel()
        for metric, read in _STATUS_COUNTERS:
            total = read(status)
            self._tell.add(metric, total - self._counted[metric.name])
            self._counted[metric.name] = total
        for metric, read in _STATUS_GAUGES:
            self._tell.set(metric, read(status))
        self._look_at_policy(channel, status.num_decoding)

    def _look_at_policy(self, channel: ChannelStatus, batch_size: int) -> None:
        tell, table, now = self._tell, channel.held.table, self._unix_s()
        if table.version:
            tell.set(defined.TABLE_AGE, max(0.0, now - channel.held.set_at_unix_s))
        if channel.heard_s_ago is not None:
            tell.set(defined.POLICY_SILENCE, channel.heard_s_ago)
        calibrated_at = self._sources.calibrated_at_unix_s()
        if calibrated_at is not None:
            tell.set(defined.CALIBRATION_AGE, max(0.0, now - calibrated_at))
        for size in self._sizes:
            tell.set(defined.DRAFT_LENGTH, table.draft_len(size), batch_size=str(size))
        for size, ratio in self._current_speedups(table).items():
            tell.set(defined.ESTIMATED_SPEEDUP, ratio, batch_size=str(size))
        ratio_now = self._sources.speedup(batch_size, table) if batch_size else None
        if ratio_now is not None:
            tell.set(defined.ESTIMATED_SPEEDUP_IN_FORCE, ratio_now)

    def _current_speedups(self, table: SpeculationTable) -> dict[int, float]:
        if table is not self._speedups_of or self._speedups_age >= _SPEEDUPS_EVERY:
            found = {size: self._sources.speedup(size, table) for size in self._sizes}
            self._speedups = {size: ratio for size, ratio in found.items() if ratio is not None}
            self._speedups_of, self._speedups_age = table, 0
        self._speedups_age += 1
        return self._speedups

    async def _run(self) -> None:
        has_failed = False
        while True:
            try:
                self.look()
            except Exception:
                if not has_failed:  # told once, not every second
                    logger.exception("metrics are not exported")
                has_failed = True
            await asyncio.sleep(PERIOD_S)
