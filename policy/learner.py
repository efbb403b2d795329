"""What is known of one kind of replica, and the table that follows from it. Pure but for counting.

Calibration says what a round costs; reports of live traffic set that right, and say how many draft
tokens are kept. Both fade, so that the table follows machine and traffic.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from policy.acceptance import Acceptance, AcceptanceTracker
from policy.cost import Calibration
from policy.cost_tracker import CostTracker
from policy.explain import explain, why
from policy.optimize import Choice, Decision, Rounds, decide, evaluate, rungs_of
from policy.quoting import shown
from policy.stats import StatsWindow, batch_bucket
from policy.table import Budget, Lengths, Share, SpeculationTable

MIN_GAIN = 0.025
"""A length changes when another is expected to give so much more."""
_HALF_LIFE_STEPS = 50.0
"""Of the steps of one replica: a change of the traffic is half believed after so many."""
_USUAL_CONTEXT = 256.0
_CONTEXT_HALF_LIFE_STEPS = 500.0
_CHANGED_ACCEPTANCE = 0.08
_CHANGED_BREAK_EVEN = 0.3
"""A budget is published anew when one of them moved so far; the second is a share of it."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A table to be published."""

    rungs: tuple[tuple[int, int], ...]
    budget: Budget
    why: str


class Learner:
    """Takes in reports and decides. One for each kind of replica."""

    def __init__(self, *, max_batch: int, max_draft_len: int) -> None:
        self._max_batch = max_batch
        self._max_draft_len = max_draft_len
        self._cost: CostTracker | None = None
        self._acceptance = AcceptanceTracker(max_draft_len)
        self._context = _USUAL_CONTEXT
        self.steps = 0
        """Steps that were reported: of two states of knowledge the one with more is better."""

    @property
    def limits(self) -> tuple[int, int]:
        """Sequences and draft tokens at most: what is known under others is of no use."""
        return self._max_batch, self._max_draft_len

    @property
    def calibration(self) -> Calibration | None:
        return None if self._cost is None else self._cost.calibration

    def calibrate(self, calibration: Calibration) -> None:
        """What was measured; corrections by traffic begin anew."""
        self._cost = CostTracker(calibration)

    def observe(self, window: StatsWindow, num_replicas: int) -> None:
        """Take in what a replica counted; `num_replicas` report in turns."""
        self.steps += window.steps
        with_drafts = window.steps - window.steps_without_draft
        self._acceptance.observe(
            window.positions, with_drafts, _HALF_LIFE_STEPS * max(1, num_replicas)
        )
        steps = sum(sums.steps for sums in window.shapes.values())
        if steps:
            mean = sum(sums.context_tokens for sums in window.shapes.values()) / steps
            share = 0.5 ** (steps / _CONTEXT_HALF_LIFE_STEPS)
            self._context = share * self._context + (1 - share) * mean
        if self._cost is not None:
            self._cost.observe(window.shapes)

    def decide(self, table: SpeculationTable) -> Decided | None:
        """What to publish in the place of `table`; None where that is as good, or nothing was
        measured yet."""
        if self._cost is None:
            return None
        cost, acceptance_of = self._cost.model(), self._acceptances()
        is_first = table.budget is None
        decision = decide(
            cost,
            acceptance_of,
            max_batch=self._max_batch,
            max_len=self._max_draft_len,
            context=self._context,
            previous=None if is_first else table.lengths,
            min_gain=MIN_GAIN,
        )
        rungs = rungs_of(decision)
        pooled = self._acceptance.pooled()
        budget = _budget(rungs, decision, pooled)
        if is_first:
            reason = f"first table of measured cost; {_seen(pooled)}"
        elif decision.changed or rungs != table.rungs:
            before = [table.lengths(size) for size in range(1, self._max_batch + 1)]
            if not decision.changed:
                reason = "the same lengths in fewer rungs"
            else:

                def evaluated(size: int, lengths: Lengths) -> Choice:
                    return evaluate(cost, acceptance_of(size), size, lengths, self._context)

                reason = f"{why(before, decision, evaluated)}; {_seen(pooled)}"
        elif table.budget is not None and _moved(table.budget, budget):
            reason = (
                f"{_acceptances(table.budget)} -> {_acceptances(budget)}: who gets draft tokens"
            )
        else:
            return None
        return Decided(rungs, budget, reason)

    def choices(self, batch_size: int) -> tuple[list[Choice], Acceptance] | None:
        """What each length gives at a batch size, of all drafts alike; None where nothing was
        measured yet."""
        rounds = self._rounds(batch_size)
        return None if rounds is None else (rounds.alike(), rounds.acceptance)

    def explain(self, batch_size: int, table: SpeculationTable) -> str:
        """In words and numbers why the table has its lengths there."""
        rounds = self._rounds(batch_size)
        if rounds is None:
            length = min(table.draft_len(batch_size), self._max_draft_len)
            return f"at batch {batch_size} length {length}: no cost was measured yet"
        held = self._held(batch_size, table)
        return explain(rounds.choice(held), rounds.best(), rounds.alike(), rounds.acceptance)

    def compare(self, batch_size: int, table: SpeculationTable) -> tuple[Choice, Choice] | None:
        """What the table's lengths give there, and what none would; None where nothing was measured
        yet."""
        rounds = self._rounds(batch_size)
        if rounds is None:
            return None
        return rounds.choice(self._held(batch_size, table)), rounds.choice(Lengths(0, 0))

    def seconds_per_token(self, batch_size: int, table: SpeculationTable) -> float | None:
        """From one token of a sequence to its next, when so many decode with the table's lengths;
        None where nothing was measured yet."""
        rounds = self._rounds(batch_size)
        if rounds is None:
            return None
        choice = rounds.choice(self._held(batch_size, table))
        return choice.round_seconds / choice.tokens_per_round

    def speedup(self, batch_size: int, table: SpeculationTable) -> float | None:
        """Tokens a second that so many sequences get with the table's lengths, over those with
        length 0; None where nothing was measured yet."""
        rounds = self._rounds(batch_size)
        if rounds is None:
            return None
        held = rounds.choice(self._held(batch_size, table))
        return held.tokens_per_second / rounds.choice(Lengths(0, 0)).tokens_per_second

    def seconds_per_prompt_token(self) -> float | None:
        """As of one more token in the largest pass that was measured; None where none was."""
        if self._cost is None:
            return None
        calibration = self._cost.calibration
        batch_size, draft_len = calibration.batch_sizes[-1], calibration.draft_lens[-1]
        target = self._cost.model().at(batch_size, self._context).target
        return max(0.0, target(draft_len) - target(0.0)) / (batch_size * draft_len)

    def _held(self, batch_size: int, table: SpeculationTable) -> Lengths:
        return Lengths(*(min(s, self._max_draft_len) for s in table.lengths(batch_size)))

    def _rounds(self, batch_size: int) -> Rounds | None:
        if self._cost is None:
            return None
        acceptance = self._acceptance.estimate(batch_size)
        return Rounds(
            self._cost.model(), acceptance, batch_size, self._max_draft_len, self._context
        )

    def _acceptances(self) -> Callable[[int], Acceptance]:
        """By batch size, each estimated once."""
        found: dict[int, Acceptance] = {}

        def acceptance_of(batch_size: int) -> Acceptance:
            bucket = batch_bucket(batch_size)
            if bucket not in found:
                found[bucket] = self._acceptance.estimate(bucket)
            return found[bucket]

        return acceptance_of

    def as_json(self) -> dict[str, Any]:
        return {
            "max_batch": self._max_batch,
            "max_draft_len": self._max_draft_len,
            "steps": self.steps,
            "context": self._context,
            "cost": None if self._cost is None else self._cost.as_json(),
            "acceptance": self._acceptance.as_json(),
        }

    @classmethod
    def from_json(cls, value: object) -> "Learner":
        """Raises ValueError for anything that `as_json` never made."""
        try:
            learner = cls(
                max_batch=int(value["max_batch"]),  # type: ignore[index]
                max_draft_len=int(value["max_draft_len"]),  # type: ignore[index]
            )
            learner.steps = int(value["steps"])  # type: ignore[index]
            learner._context = float(value["context"])  # type: ignore[index]
            for name, number in (("steps", learner.steps), ("context", learner._context)):
                if not 0 <= number < math.inf:
                    raise ValueError(f"{name} must be finite, from 0 on, got {shown(number)}")
            cost = value["cost"]  # type: ignore[index]
            learner._cost = None if cost is None else CostTracker.from_json(cost)
            learner._acceptance = AcceptanceTracker.from_json(value["acceptance"])  # type: ignore[index]
            if learner._max_batch < 1 or learner._acceptance.max_len != learner._max_draft_len:
                raise ValueError(f"limits can't be {shown(learner.limits)}")
        except (TypeError, KeyError, OverflowError) as error:
            raise ValueError(f"not a state of a learner: {error}") from None
        return learner


def _budget(rungs: Sequence[tuple[int, int]], decision: Decision, acceptance: Acceptance) -> Budget:
    rates = [source.mean_conditional for source in acceptance.sources]
    choices = [decision.choices[largest - 1] for largest, _ in rungs]
    modelled, looked_up = (
        _share(
            [choice.lengths[source] for choice in choices],
            [choice.min_survival[source] for choice in choices],
            rates[source],
        )
        for source in (0, 1)
    )
    return Budget(modelled, looked_up)


def _share(lengths: Sequence[int], min_survivals: Sequence[float], rate: float) -> Share:
    """A sequence that fares as all do gets the table's length: break-even is held to where that is
    so."""
    break_even = []
    for length, least in zip(lengths, min_survivals, strict=True):
        low, high = rate ** (length + 1), rate**length
        # A hair above the chance of one more token.
        break_even.append(min(high, max(least, low + 0.05 * (high - low))))
    return Share(tuple(lengths), tuple(break_even), rate)


def _moved(before: Budget, after: Budget) -> bool:
    return _share_moved(before.modelled, after.modelled) or _share_moved(
        before.looked_up, after.looked_up
    )


def _share_moved(before: Share, after: Share) -> bool:
    if abs(before.acceptance - after.acceptance) > _CHANGED_ACCEPTANCE:
        return True
    return any(
        abs(old - new) > _CHANGED_BREAK_EVEN * max(old, new)
        for old, new in zip(before.break_even, after.break_even, strict=True)
    )


def _acceptances(budget: Budget) -> str:
    modelled, looked_up = budget.modelled.acceptance, budget.looked_up.acceptance
    return f"acceptance {modelled:.2f}, looked up {looked_up:.2f}"


def _seen(acceptance: Acceptance) -> str:
    if acceptance.rounds < 1:
        return "nothing was drafted yet"
    first = acceptance.survival[0] if acceptance.survival else 0.0
    return (
        f"first token kept {first:.2f}, drafts in {acceptance.has_draft:.2f} of "
        f"{acceptance.rounds:,.0f} rounds"
    )
