"""Counts of what speculation did, mergeable over windows and over replicas."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class StatsWindow:
    """Sums over a stretch of engine steps: counts of tokens, rounds, steps; times in seconds."""

    table_version: int = 0
    """Version in force at the end of the window."""
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
        _count(self.drafted_by_position, num_drafted, times)
        _count(self.accepted_by_position, num_accepted, times)

    def merge(self, later: "StatsWindow") -> None:
        """Add the counts of a later window to this one."""
        self.table_version = later.table_version
        self.steps += later.steps
        self.steps_without_draft += later.steps_without_draft
        self.rounds += later.rounds
        self.emitted_tokens += later.emitted_tokens
        self.draft_seconds += later.draft_seconds
        self.target_seconds += later.target_seconds
        self.verify_seconds += later.verify_seconds
        _add(self.drafted_by_position, later.drafted_by_position)
        _add(self.accepted_by_position, later.accepted_by_position)


def _count(by_position: list[int], up_to: int, times: int) -> None:
    """Add `times` to each of the first `up_to` positions."""
    by_position.extend([0] * (up_to - len(by_position)))
    for position in range(up_to):
        by_position[position] += times


def _add(into: list[int], other: list[int]) -> None:
    into.extend([0] * (len(other) - len(into)))
    for position, count in enumerate(other):
        into[position] += count
