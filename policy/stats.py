"""Counts of what speculation did, mergeable over windows and over replicas."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class StepShape(NamedTuple):
    """Steps of one shape cost the same, but for noise and the length of the contexts."""

    batch_size: int
    """Decoding sequences, none of which has anything else to compute."""
    draft_len: int
    """Tokens that the drafter was asked for, of any sequence at most."""
    num_drafted: int
    """Tokens that it drafted, of all sequences together."""


@dataclass(slots=True)
class ShapeSums:
    """Of the steps of one shape, in which all sequences were decoding."""

    steps: int = 0
    context_tokens: float = 0.0
    """Mean over the sequences, summed over the steps."""
    target_seconds: float = 0.0
    """All of a step but drafting: its plan, the target's pass, the choice, the books."""
    draft_seconds: float = 0.0

    def merge(self, other: "ShapeSums") -> None:
        self.steps += other.steps
        self.context_tokens += other.context_tokens
        self.target_seconds += other.target_seconds
        self.draft_seconds += other.draft_seconds


@dataclass(slots=True)
class PositionCounts:
    """What became of drafts, by position; halves of a count come from decay."""

    asked: float = 0.0
    """Rounds of one sequence in which a draft was asked for."""
    reached: list[float] = field(default_factory=list)
    """Entry i: drafts with a token at position i (0-based) whose forerunners were all kept."""
    kept: list[float] = field(default_factory=list)
    """Entry i: of those, the ones whose token at position i was kept as well."""

    def record(self, num_drafted: int, num_kept: int, times: float = 1, *, first: int = 0) -> None:
        """Count drafts that went alike, from position `first` on, up to which all was kept."""
        _count(self.reached, first, first + min(num_drafted, num_kept + 1), times)
        _count(self.kept, first, first + num_kept, times)

    def merge(self, other: "PositionCounts") -> None:
        self.asked += other.asked
        _add(self.reached, other.reached)
        _add(self.kept, other.kept)

    def scale(self, by_position: Sequence[float]) -> None:
        """Make the counts of each position less, by a factor of its own; rounds by the first."""
        self.asked *= by_position[0]
        self.reached = [x * count for x, count in zip(by_position, self.reached, strict=False)]
        self.kept = [x * count for x, count in zip(by_position, self.kept, strict=False)]


class Fate(NamedTuple):
    """What became of one draft that was asked for."""

    num_drafted: int
    num_kept: int
    looked_up: bool = False
    """Whether the draft stands in the text; else a model made it, or there is none."""
    asks_model: bool = True
    asks_text: bool = True


@dataclass(slots=True)
class DraftCounts:
    """What became of drafts, by who made them: a model is asked where nothing was looked up."""

    asked: float = 0.0
    """Rounds of one sequence in which a draft was asked for, of whomever."""
    modelled: PositionCounts = field(default_factory=PositionCounts)
    """Of a model: drafts as they were."""
    looked_up: PositionCounts = field(default_factory=PositionCounts)
    """Of the text itself; also as they would have gone on, had they been longer."""

    def record(self, fate: "Fate", times: float = 1) -> None:
        """Count rounds that went alike."""
        self.asked += times
        if fate.asks_text:
            self.looked_up.asked += times
        if fate.looked_up:
            self.looked_up.record(fate.num_drafted, fate.num_kept, times)
        elif fate.asks_model:
            self.modelled.asked += times
            self.modelled.record(fate.num_drafted, fate.num_kept, times)

    @property
    def drafts(self) -> float:
        """Rounds in which there was one."""
        return sum(counts.reached[0] for counts in self.by_source if counts.reached)

    @property
    def kept_first(self) -> float:
        """Drafts whose first token was kept."""
        return sum(counts.kept[0] for counts in self.by_source if counts.kept)

    @property
    def by_source(self) -> tuple[PositionCounts, PositionCounts]:
        return self.modelled, self.looked_up

    def merge(self, other: "DraftCounts") -> None:
        self.asked += other.asked
        for into, counts in zip(self.by_source, other.by_source, strict=True):
            into.merge(counts)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What a replica has to do at one moment, in sequences."""

    running: int = 0
    waiting: int = 0
    decoding: int = 0
    """Of the running ones, those whose prompt is computed: the batch size of the table."""
    draft_len: int = 0
    """Length in force at that batch size."""
    kv_use: float = 0.0
    """Share of the KV blocks that running sequences hold."""


def batch_bucket(batch_size: int) -> int:
    """The power of two that acceptance is counted under: the next one that is not smaller.

    >>> [batch_bucket(size) for size in (1, 2, 3, 8, 9)]
    [1, 2, 4, 8, 16]
    """
    return 1 << (batch_size - 1).bit_length()


def told_sizes(max_batch: int) -> tuple[int, ...]:
    """The batch sizes that tables of numbers are made of: powers of two, and the largest.

    >>> told_sizes(12)
    (1, 2, 4, 8, 12)
    """
    powers = [1 << power for power in range(max_batch.bit_length())]
    return tuple(sorted({*powers, max_batch}))


@dataclass(slots=True)
class StatsWindow:
    """Sums over a stretch of engine steps: counts of tokens, rounds, steps; times in seconds."""

    table_version: int = 0
    """Version in force at the end of the window."""
    occupancy: Occupancy = field(default_factory=Occupancy)
    """At the end of the window."""
    wall_seconds: float = 0.0
    """From the end of the window before to this one's, where it has steps."""
    steps: int = 0
    steps_without_draft: int = 0
    rounds: int = 0
    """Verifications of one sequence's draft, an empty draft included."""
    emitted_tokens: int = 0
    drafted_by_position: list[int] = field(default_factory=list)
    """Entry i: drafts that proposed a token at draft position i (0-based)."""
    accepted_by_position: list[int] = field(default_factory=list)
    """Entry i: drafts whose token at position i, and all before it, were kept."""
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    """In the target's forward passes."""
    verify_seconds: float = 0.0
    """Choosing the target's tokens and comparing the drafts with them."""
    probes: int = 0
    """Steps in which one sequence drafted more than the table says, to see what would be kept."""
    probe_seconds: float = 0.0
    """What they took beyond other steps; what they won in tokens is not taken off."""
    shapes: dict[StepShape, ShapeSums] = field(default_factory=dict)
    """What steps cost; not those that computed prompts too."""
    positions: dict[int, DraftCounts] = field(default_factory=dict)
    """What became of drafts, by `batch_bucket` of the sequences that decoded."""

    @property
    def drafted_tokens(self) -> int:
        return sum(self.drafted_by_position)

    @property
    def accepted_tokens(self) -> int:
        return sum(self.accepted_by_position)

    def record_rounds(
        self, num_drafted: int, num_accepted: int, num_emitted: int, times: int = 1
    ) -> None:
        """Count the verifications of so many sequences that went alike."""
        self.rounds += times
        self.emitted_tokens += times * num_emitted
        _count(self.drafted_by_position, 0, num_drafted, times)
        _count(self.accepted_by_position, 0, num_accepted, times)

    def record_drafts(self, batch_size: int, fate: Fate, times: int = 1) -> None:
        """Count drafts that were asked for, those that came to nothing included."""
        self._counts_of(batch_size).record(fate, times)

    def record_foreseen(self, batch_size: int, first: int, num_drafted: int, num_kept: int) -> None:
        """Count what a draft that was looked up would have come to from position `first` on, where
        it ended."""
        self._counts_of(batch_size).looked_up.record(num_drafted, num_kept, first=first)

    def _counts_of(self, batch_size: int) -> DraftCounts:
        bucket = batch_bucket(batch_size)
        counts = self.positions.get(bucket)
        if counts is None:
            counts = self.positions[bucket] = DraftCounts()
        return counts

    def record_step(
        self, shape: StepShape, context_tokens: float, target_seconds: float, draft_seconds: float
    ) -> None:
        """Count a step in which every sequence decoded."""
        sums = self.shapes.get(shape)
        if sums is None:
            sums = self.shapes[shape] = ShapeSums()
        sums.steps += 1
        sums.context_tokens += context_tokens
        sums.target_seconds += target_seconds
        sums.draft_seconds += draft_seconds

    def merge(self, later: "StatsWindow") -> None:
        """Add the counts of a later window to this one."""
        self.merge_totals(later)
        for shape, sums in later.shapes.items():
            self.shapes.setdefault(shape, ShapeSums()).merge(sums)
        for bucket, counts in later.positions.items():
            self.positions.setdefault(bucket, DraftCounts()).merge(counts)

    def merge_totals(self, later: "StatsWindow") -> None:
        """The same without what is counted by shape and by batch size: for sums that are kept."""
        self.table_version = later.table_version
        self.occupancy = later.occupancy
        self.wall_seconds += later.wall_seconds
        self.steps += later.steps
        self.steps_without_draft += later.steps_without_draft
        self.rounds += later.rounds
        self.emitted_tokens += later.emitted_tokens
        self.draft_seconds += later.draft_seconds
        self.target_seconds += later.target_seconds
        self.verify_seconds += later.verify_seconds
        self.probes += later.probes
        self.probe_seconds += later.probe_seconds
        _add(self.drafted_by_position, later.drafted_by_position)
        _add(self.accepted_by_position, later.accepted_by_position)


def _count(by_position: list, first: int, end: int, times: float) -> None:  # type: ignore[type-arg]
    """Add `times` to the positions from `first` up to `end`."""
    by_position.extend([0] * (end - len(by_position)))
    for position in range(first, end):
        by_position[position] += times


def _add(into: list, other: list) -> None:  # type: ignore[type-arg]
    into.extend([0] * (len(other) - len(into)))
    for position, count in enumerate(other):
        into[position] += count
