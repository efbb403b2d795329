"""From cost and acceptance to a draft length for each batch size. Pure.

What is maximised is tokens per second: of all sequences, in a round, over the seconds of the round,
as in T(b, s) of Su, Giannoula, Pekhimenko 2023 (arXiv 2310.18813), with measured seconds in the
place of its straight lines, and 0 among the lengths.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from policy.acceptance import Acceptance
from policy.cost import CostModel

_MOST_TERMS = 9
"""Numbers of sequences with a draft that are told apart; a round's cost is nearly straight in
between."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a draft length gives at a batch size."""

    batch_size: int
    draft_len: int
    tokens_per_round: float
    """Of each sequence."""
    round_seconds: float
    tokens_per_second: float
    """Of the whole batch."""
    min_survival: float
    """How likely one more draft token must be kept to pay, at this pace."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The length of each batch size."""

    choices: tuple[Choice, ...]
    """Of batch size 1, 2, ..."""
    changed: tuple[int, ...]
    """Batch sizes whose length is another than before."""

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(choice.draft_len for choice in self.choices)


def evaluate(
    cost: CostModel, acceptance: Acceptance, batch_size: int, draft_len: int, context: float
) -> Choice:
    """Tokens and seconds of a round in which each of `batch_size` sequences is asked for
    `draft_len` tokens; a sequence has a draft with probability `acceptance.has_draft`."""
    plain = cost.target_seconds(batch_size, 0, context)
    tokens = 1.0 + acceptance.accepted(draft_len)
    drafting = cost.draft_seconds(batch_size, draft_len, context)
    seconds = drafting + (
        _expected(cost, acceptance.has_draft, batch_size, draft_len, context)
        if draft_len
        else plain
    )
    rate = batch_size * tokens / seconds
    length = max(1, draft_len)
    slots = batch_size * length
    added = cost.target_seconds(batch_size, slots, context) - plain
    added += cost.draft_seconds(batch_size, length, context)
    pays = min(1.0, max(0.0, rate * added / slots))
    return Choice(batch_size, draft_len, tokens, seconds, rate, pays)


def best(
    cost: CostModel, acceptance: Acceptance, batch_size: int, max_len: int, context: float
) -> Choice:
    """The length that gives most; of equals the shortest."""
    choices = (
        evaluate(cost, acceptance, batch_size, draft_len, context)
        for draft_len in range(max_len + 1)
    )
    return max(choices, key=lambda choice: (choice.tokens_per_second, -choice.draft_len))


def decide(
    cost: CostModel,
    acceptance_of: Callable[[int], Acceptance],
    *,
    max_batch: int,
    max_len: int,
    context: float,
    previous: Callable[[int], int] | None,
    min_gain: float,
) -> Decision:
    """A length for each batch size up to `max_batch`. What was chosen before (`previous`) stays
    unless another gives more than `min_gain` more: noise makes no changes."""
    choices, changed = [], []
    for batch_size in range(1, max_batch + 1):
        acceptance = acceptance_of(batch_size)
        choice = best(cost, acceptance, batch_size, max_len, context)
        if previous is not None:
            before = min(previous(batch_size), max_len)
            held = evaluate(cost, acceptance, batch_size, before, context)
            if choice.tokens_per_second <= (1.0 + min_gain) * held.tokens_per_second:
                choice = held
            if choice.draft_len != before:
                changed.append(batch_size)
        choices.append(choice)
    return Decision(tuple(choices), tuple(changed))


def rungs_of(decision: Decision) -> tuple[tuple[int, int], ...]:
    """As a table has them: the largest batch size of each stretch with its length."""
    rungs: list[tuple[int, int]] = []
    for choice in decision.choices:
        if rungs and rungs[-1][1] == choice.draft_len:
            rungs.pop()
        rungs.append((choice.batch_size, choice.draft_len))
    if rungs and rungs[-1][1] == 0:
        rungs.pop()
    return tuple(rungs)


def _expected(
    cost: CostModel, has_draft: float, batch_size: int, draft_len: int, context: float
) -> float:
    """Seconds of the target on average: the number of sequences with a draft is binomial."""

    def seconds(num_with: float) -> float:
        return cost.target_seconds(batch_size, num_with * draft_len, context)

    if has_draft >= 1.0:
        return seconds(batch_size)
    if batch_size < _MOST_TERMS:
        return sum(
            math.comb(batch_size, m)
            * has_draft**m
            * (1 - has_draft) ** (batch_size - m)
            * seconds(m)
            for m in range(batch_size + 1)
        )
    # Three points with the binomial's mean and variance (of Gauss and Hermite).
    mean = batch_size * has_draft
    far = math.sqrt(3 * mean * (1 - has_draft))
    low, high = max(0.0, mean - far), min(float(batch_size), mean + far)
    return (seconds(low) + 4 * seconds(mean) + seconds(high)) / 6
