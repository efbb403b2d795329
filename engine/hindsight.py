"""What drafts would have come to, had they been longer: some drafters know at no cost how they
would have gone on, and the text shows soon enough whether that was right."""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

from engine.plan import Draft, StepPlan, StepResult
from policy.stats import StatsWindow


@dataclass(frozen=True, slots=True)
class _Awaited:
    text: ReadOnly[int]
    """Grows."""
    start: int
    """Where in the text the foreseen tokens should come."""
    foreseen: tuple[int, ...]
    position: int
    """Of the first of them in the draft."""
    batch_size: int


class Hindsight:
    """Compares what was foreseen with what came, of one draft of a sequence at a time: so the
    places in a text are as far apart as with longer drafts. Lives in the engine."""

    def __init__(self) -> None:
        self._awaited: dict[str, _Awaited] = {}

    def note(
        self, plan: StepPlan, drafts: ReadOnly[Draft], result: StepResult, stats: StatsWindow
    ) -> None:
        """Take in a step that was committed; count in `stats` what has come since."""
        before = self._awaited.keys()
        if before:
            self._look(plan, stats)
        if not plan.asks_for_drafts:
            return
        for part, draft, outcome in zip(plan.slices, drafts, result.slices, strict=True):
            length = len(draft.token_ids)
            if (
                draft.foreseen
                and len(outcome.new_tokens) == length + 1
                and part.request_id not in before
            ):
                start = part.end + length
                self._awaited[part.request_id] = _Awaited(
                    part.tokens, start, draft.foreseen, length, plan.num_decoding
                )

    def _look(self, plan: StepPlan, stats: StatsWindow) -> None:
        still = {}
        running = {part.request_id for part in plan.slices}
        for request_id, awaited in self._awaited.items():
            came = awaited.text[awaited.start : awaited.start + len(awaited.foreseen)]
            kept = 0
            for token, guess in zip(came, awaited.foreseen, strict=False):
                if token != guess:
                    break
                kept += 1
            # A text that ended, or whose sequence waits, shows no more than it has.
            if request_id in running and kept == len(came) < len(awaited.foreseen):
                still[request_id] = awaited
            else:
                stats.record_foreseen(awaited.batch_size, awaited.position, len(came), kept)
        self._awaited = still
