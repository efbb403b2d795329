"""A target and a draft model that are what their passes cost: for the steps of a `QuickEngine`."""

from collections.abc import Sequence as ReadOnly
from typing import Protocol

from engine.luck import Luck
from engine.plan import NO_DRAFT, Draft, SeqSlice, SliceResult, StepPlan, StepResult
from engine.simulate import VirtualClock
from policy.table import MAX_DRAFT_LEN

TOKEN = 1
"""What every text consists of: what it says matters to nobody, and its prompt tells it apart."""
_WRONG = 2
TEXTS = [(TOKEN,) * length for length in range(MAX_DRAFT_LEN + 2)]


class PassCosts(Protocol):
    """Seconds of passes of a target and of a draft model."""

    def target_seconds(
        self, num_decoding: int, num_drafted: int, num_prompt: int, context: float
    ) -> float:
        """Of a target pass over so many decoding sequences with so many draft tokens in all, and so
        many prompt tokens; `context`: tokens before those, on average over all sequences."""

    def least_seconds(self, num_decoding: int) -> float:
        """That no target pass over so many decoding sequences, or more, falls below."""

    def draft_seconds(
        self, num_drafting: int, longest: int, num_behind: int, context: int
    ) -> float:
        """Of drafting for so many sequences, `longest` tokens at most. `num_behind`: tokens of
        their texts that the draft model has yet to read; `context`: of all of them together."""


class CostedTarget:
    """The `Executor` of steps that take the long way."""

    failure = None

    def __init__(self, clock: VirtualClock, costs: PassCosts) -> None:
        self._clock = clock
        self._costs = costs

    def execute(self, plan: StepPlan, drafts: ReadOnly[Draft]) -> StepResult:
        prefilling = plan.slices[plan.num_decoding :]
        seconds = self._costs.target_seconds(
            len(plan.slices) - len(prefilling),
            sum([len(draft.token_ids) for draft in drafts]),
            sum([part.num_tokens for part in prefilling]),
            sum([part.start for part in plan.slices]) / len(plan.slices),
        )
        self._clock.advance(seconds)
        slices = tuple(
            SliceResult(TEXTS[draft.token_ids.count(TOKEN) + 1]) if part.samples else SliceResult()
            for part, draft in zip(plan.slices, drafts, strict=True)
        )
        return StepResult(slices, target_seconds=seconds, verify_seconds=0.0)

    def close(self) -> None:
        pass


class CostedDrafter:
    """The `Drafter` of those steps: a model with KV of its own, as `ModelDrafter`."""

    def __init__(self, clock: VirtualClock, costs: PassCosts, luck: Luck) -> None:
        self._clock = clock
        self._costs = costs
        self._luck = luck

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        asked = [part for part in slices if part.draft_len]
        if asked:
            longest = max([part.draft_len for part in asked])
            behind = sum([part.end - part.draft_computed - 1 for part in asked])
            context = sum([part.draft_computed for part in asked])
            self._clock.advance(self._costs.draft_seconds(len(asked), longest, behind, context))
        return [self._draft(part) if part.draft_len else NO_DRAFT for part in slices]

    def _draft(self, part: SeqSlice) -> Draft:
        length, place = part.draft_len, part.end - part.num_prompt
        right = self._luck.num_right(part.request_id, place, length, part.sampling.max_tokens)
        guesses = TEXTS[right] + (_WRONG,) * (length - right)
        return Draft(guesses, part.end + length - 1)
