"""The policy board: which table is published, who has it in force, what was counted. No Ray.

Replicas are the durable store. The board lives in an actor that may die at any time; the next one
starts from the configuration, and learns what was in force from the tables that replicas hold
when they subscribe again:

- held version 0: the replica's initial table, never published, never adopted.
- held under another configuration (fingerprints differ): never adopted, so that a new
  configuration is not undone by a replica of the old one.
- otherwise the highest held version is adopted, unless a person set a table since this board
  started: a table set by hand is never replaced by an older decision.
- a held table that was set by hand is adopted too when this board has decided as often as that in
  the meantime, unless what it took over before was published later.

Whenever a held table is not adopted although its version is as high as the board's, the board's
table is published again above it, so that versions only rise, for every replica.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from policy.account import account
from policy.choice import PolicyChoice, PolicyMode
from policy.cost import Calibration
from policy.learner import Learner
from policy.stats import StatsWindow
from policy.table import SpeculationTable

PolicySource = Literal["config", "hand", "measured"]

HISTORY_LEN = 64
FORGET_REPLICA_AFTER_S = 120.0
SILENT_AFTER_S = 45.0
"""A replica without work is heard of every half minute."""
"""Several long polls: a replica that is alive has been heard of by then."""
DECIDE_EVERY_S = 1.0
"""Reports come more often where there are many replicas, and a decision takes its time."""
CALIBRATION_LEASE_S = 20.0
"""A replica that calibrates tells of it far more often."""
SNAPSHOT_EVERY_S = 10.0
STALE_AFTER_S = 10.0
"""A replica that works reports far more often: of one that doesn't, no speed is known."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a replica says of itself."""

    kind: str
    """Replicas with equal ones share what they learn: same models, engine, hardware."""
    description: str
    """The same for people."""
    max_batch: int
    max_draft_len: int
    calibration: Calibration | None = None
    """What it has measured, or found on its disk."""
    learned: dict[str, Any] | None = None
    """What an actor before this one had learned (`Learner.as_json`)."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A published table with where it comes from; what replicas receive, hold and give back."""

    table: SpeculationTable
    mode: PolicyMode
    source: PolicySource
    set_at_unix_s: float
    config_fingerprint: str
    """Fingerprint of the configured policy of the board that published it."""
    why: str = field(default="", compare=False)
    """What was decided and what it gains, in a line. No part of what is in force."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    version: int
    at_unix_s: float
    why: str
    rungs: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class ReplicaRecord:
    seen_at_unix_s: float
    version_in_force: int = 0
    stage: str = ""
    """What the replica is doing: a loading stage, "ready", or "failed: reason"."""
    totals: StatsWindow = field(default_factory=StatsWindow)
    """Sums since this board started."""
    tokens_per_s: float = 0.0
    """In the last window that was reported, which may have been of no step."""
    reported_at_unix_s: float = 0.0
    snapshot_at_unix_s: float = 0.0
    """When it was last given what the board has learned, to keep."""


def initial_publication(configured: PolicyChoice) -> Publication:
    """What a replica holds before it has heard of any publication: the configuration, version 0."""
    return Publication(
        table=SpeculationTable(version=0, rungs=configured.rungs),
        mode=configured.mode,
        source="config",
        set_at_unix_s=0.0,
        config_fingerprint=configured.fingerprint,
    )


class PolicyBoard:
    """Owns the published table, its history and the records of the replicas."""

    def __init__(
        self, configured: PolicyChoice, max_draft_len: int, now_unix_s: Callable[[], float]
    ) -> None:
        self._now_unix_s = now_unix_s
        self._max_draft_len = max_draft_len
        self._config_fingerprint = configured.fingerprint
        self._set_by_hand = False
        self._learner: Learner | None = None
        self._decided_at_unix_s = -DECIDE_EVERY_S
        self._recovered_set_at_unix_s = 0.0
        """Of the table that was last taken over from a replica."""
        self._calibrating: tuple[str, float] | None = None
        """Which replica, and when it last told of it."""
        self._history: deque[HistoryEntry] = deque(maxlen=HISTORY_LEN)
        self._replicas: dict[str, ReplicaRecord] = {}
        self._started_at_unix_s = now_unix_s()
        self._published = initial_publication(configured)
        self._publish(
            replace(self._published, set_at_unix_s=self._started_at_unix_s), 1, "configuration"
        )

    @property
    def published(self) -> Publication:
        return self._published

    @property
    def history(self) -> tuple[HistoryEntry, ...]:
        """Publications, oldest first."""
        return tuple(self._history)

    def set_by_hand(self, choice: PolicyChoice) -> Publication:
        """Publish what a person chose. Raises ValueError when the drafts would be too long."""
        choice.limited_to(self._max_draft_len)
        self._set_by_hand = True
        self._publish(
            Publication(
                table=SpeculationTable(version=0, rungs=choice.rungs),
                mode=choice.mode,
                source="hand",
                set_at_unix_s=self._now_unix_s(),
                config_fingerprint=self._config_fingerprint,
            ),
            self._published.table.version + 1,
            f"set by hand: {choice.mode}",
        )
        if choice.mode == "adaptive":
            self._decide()
        return self._published

    def introduce(self, replica_id: str, said: Introduction) -> bool:
        """Take in what a replica knows. True when that changed the published table."""
        self._record(replica_id)
        before = self._learner
        mine = before or Learner(max_batch=said.max_batch, max_draft_len=said.max_draft_len)
        was_calibrated = mine.calibration is not None
        calibrations = [mine.calibration]
        if said.learned is not None:
            try:
                theirs = Learner.from_json(said.learned)
            except ValueError:
                theirs = mine  # of another version; it is learned again
            if theirs.limits == mine.limits:
                calibrations.append(theirs.calibration)
                if theirs.steps > mine.steps:
                    mine = theirs
        # What was measured is kept, whoever has seen most steps.
        for calibration in (*calibrations, said.calibration):
            if mine.calibration is None and calibration is not None:
                mine.calibrate(calibration)
        has_news = mine is not before or (mine.calibration is not None) != was_calibrated
        self._learner = mine
        if self._calibrating is not None and self._calibrating[0] == replica_id:
            self._calibrating = None
        # A thousand replicas may come at once, and to decide takes its time.
        return has_news and self._decide()

    def may_calibrate(self, replica_id: str) -> bool:
        """Whether this replica is to measure what a step costs: one of them, if none has. It keeps
        that right while it tells its stage, and loses it when it falls silent."""
        self._record(replica_id)
        if self._learner is not None and self._learner.calibration is not None:
            return False
        now = self._now_unix_s()
        if self._calibrating is not None:
            other, told_at = self._calibrating
            if other != replica_id and now - told_at < CALIBRATION_LEASE_S:
                return False
        self._calibrating = (replica_id, now)
        return True

    def explain(self, batch_size: int) -> dict[str, Any]:
        """Why the table has its length at a batch size."""
        table, mode = self._published.table, self._published.mode
        length = table.draft_len(batch_size)
        if self._learner is None:
            text = f"at batch {batch_size} length {length}: no cost was measured yet"
        else:
            text = self._learner.explain(batch_size, table)
        if mode != "adaptive":
            text = f"the policy is {mode}, {self._published.source}; {text}"
        return {"batch_size": batch_size, "draft_len": length, "mode": mode, "text": text}

    def explain_table(self) -> dict[str, Any]:
        """The table rung by rung: what each length gives over none (`policy.account`)."""
        published = self._published
        return {
            "version": published.table.version,
            "mode": published.mode,
            "source": published.source,
            **account(published.table, self._learner),
        }

    def snapshot(self, replica_id: str) -> dict[str, Any] | None:
        """What was learned, for a replica to keep; None while what it has is fresh."""
        record, now = self._record(replica_id), self._now_unix_s()
        if self._learner is None or now - record.snapshot_at_unix_s < SNAPSHOT_EVERY_S:
            return None
        record.snapshot_at_unix_s = now
        return self._learner.as_json()

    def subscribe(self, replica_id: str, held: Publication) -> bool:
        """Note what a replica holds. True when that changed the published table."""
        self._record(replica_id)
        ours, theirs = self._published.table.version, held.table.version
        if theirs == 0 or held == self._published:
            return False
        same_config = held.config_fingerprint == self._config_fingerprint
        is_later = theirs > ours or (
            held.source == "hand" and held.set_at_unix_s > self._recovered_set_at_unix_s
        )
        if same_config and is_later and not self._set_by_hand:
            self._recovered_set_at_unix_s = held.set_at_unix_s
            self._publish(held, max(theirs, ours + 1), f"recovered from replica {replica_id}")
        elif theirs < ours:
            return False
        else:
            self._publish(
                self._published, theirs + 1, f"above version {theirs} of replica {replica_id}"
            )
        return True

    def newer_than(self, version: int) -> Publication | None:
        """The published table if its version is higher."""
        return self._published if self._published.table.version > version else None

    def observe(self, replica_id: str, window: StatsWindow) -> bool:
        """Add a replica's counts; its window also tells the version in force there. True when that
        changed the published table."""
        record = self._record(replica_id)
        record.version_in_force = window.table_version
        record.totals.merge_totals(window)
        record.reported_at_unix_s = record.seen_at_unix_s
        seconds = window.wall_seconds
        record.tokens_per_s = window.emitted_tokens / seconds if seconds else 0.0
        if self._learner is None:
            return False
        self._learner.observe(window, len(self._replicas))
        now = self._now_unix_s()
        if now - self._decided_at_unix_s < DECIDE_EVERY_S:
            return False
        return self._decide()

    def note_stage(self, replica_id: str, stage: str) -> None:
        """Note what a replica is doing."""
        self._record(replica_id).stage = stage
        if self._calibrating is not None and self._calibrating[0] == replica_id:
            self._calibrating = (replica_id, self._now_unix_s())

    def forget(self, replica_id: str) -> None:
        """It belongs elsewhere."""
        self._replicas.pop(replica_id, None)

    @property
    def num_replicas(self) -> int:
        return len(self._replicas)

    def _decide(self) -> bool:
        """Publish what the learner would have, in adaptive mode."""
        now = self._now_unix_s()
        self._decided_at_unix_s = now
        # Those that are gone report no more: what is known would fade too slowly.
        self._forget_silent_replicas(now)
        published = self._published
        if self._learner is None or published.mode != "adaptive":
            return False
        decided = self._learner.decide(published.table)
        if decided is None:
            return False
        table = SpeculationTable(0, decided.rungs, decided.budget)
        self._publish(
            replace(published, table=table, source="measured", set_at_unix_s=now),
            published.table.version + 1,
            decided.why,
        )
        return True

    def describe(self) -> dict[str, Any]:
        """Table, history and replicas as JSON-ready values."""
        now = self._now_unix_s()
        self._forget_silent_replicas(now)
        published = self._published
        return {
            "table": {
                "version": published.table.version,
                "rungs": [list(rung) for rung in published.table.rungs],
                "mode": published.mode,
                "source": published.source,
                "set_at_unix_s": published.set_at_unix_s,
            },
            "replicas": [
                _describe_replica(replica_id, record, now)
                for replica_id, record in sorted(self._replicas.items())
            ],
            "history": [
                {
                    "version": entry.version,
                    "at_unix_s": entry.at_unix_s,
                    "why": entry.why,
                    "rungs": [list(rung) for rung in entry.rungs],
                }
                for entry in self._history
            ],
            "started_at_unix_s": self._started_at_unix_s,
        }

    def _publish(self, publication: Publication, version: int, why: str) -> None:
        assert version > self._published.table.version
        table = publication.table.with_version(version)
        self._published = replace(publication, table=table, why=why)
        self._history.append(HistoryEntry(version, self._now_unix_s(), why, table.rungs))

    def _record(self, replica_id: str) -> ReplicaRecord:
        now = self._now_unix_s()
        record = self._replicas.setdefault(replica_id, ReplicaRecord(seen_at_unix_s=now))
        record.seen_at_unix_s = now
        return record

    def _forget_silent_replicas(self, now_unix_s: float) -> None:
        for replica_id, record in list(self._replicas.items()):
            if now_unix_s - record.seen_at_unix_s > FORGET_REPLICA_AFTER_S:
                del self._replicas[replica_id]


def _describe_replica(replica_id: str, record: ReplicaRecord, now_unix_s: float) -> dict[str, Any]:
    totals = record.totals
    is_fresh = now_unix_s - record.reported_at_unix_s < STALE_AFTER_S
    seen_s_ago = max(0.0, now_unix_s - record.seen_at_unix_s)
    return {
        "replica_id": replica_id,
        "version_in_force": record.version_in_force,
        "seen_s_ago": round(seen_s_ago, 3),
        "is_silent": seen_s_ago > SILENT_AFTER_S,
        "stage": record.stage,
        **asdict(totals.occupancy),
        "tokens_per_s": round(record.tokens_per_s, 1) if is_fresh else 0.0,
        "steps": totals.steps,
        "steps_without_draft": totals.steps_without_draft,
        "rounds": totals.rounds,
        "emitted_tokens": totals.emitted_tokens,
        "drafted_tokens": totals.drafted_tokens,
        "accepted_tokens": totals.accepted_tokens,
        "accepted_by_position": list(totals.accepted_by_position),
        "drafted_by_position": list(totals.drafted_by_position),
        "probes": totals.probes,
        "probe_seconds": totals.probe_seconds,
        "draft_seconds": totals.draft_seconds,
        "target_seconds": totals.target_seconds,
    }
