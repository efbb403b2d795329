"""From cost and acceptance to a draft length for each batch size. Pure.

What is maximised is tokens per second: of all sequences, in a round, over the seconds of the round,
as in T(b, s) of Su, Giannoula, Pekhimenko 2023 (arXiv 2310.18813), with measured seconds in the
place of its straight lines, and 0 among the lengths.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policy.acceptance import Acceptance
from policy.cost import CostModel, RoundCost
from policy.lines import Tails


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
    return _evaluate(
        cost.at(batch_size, context), acceptance, draft_len, _tails(acceptance, batch_size)
    )


def best(
    cost: CostModel, acceptance: Acceptance, batch_size: int, max_len: int, context: float
) -> Choice:
    """The length that gives most; of equals the shortest."""
    return _best(_all(cost, acceptance, batch_size, max_len, context))


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
        of_length = _all(cost, acceptance, batch_size, max_len, context)
        choice = _best(of_length)
        if previous is not None:
            before = min(previous(batch_size), max_len)
            held = of_length[before]
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


def _all(
    cost: CostModel, acceptance: Acceptance, batch_size: int, max_len: int, context: float
) -> list[Choice]:
    """Entry s: what length s gives."""
    of_round, tails = cost.at(batch_size, context), _tails(acceptance, batch_size)
    return [_evaluate(of_round, acceptance, s, tails) for s in range(max_len + 1)]


def _best(choices: Sequence[Choice]) -> Choice:
    return max(choices, key=lambda choice: (choice.tokens_per_second, -choice.draft_len))


def _tails(acceptance: Acceptance, batch_size: int) -> Tails | None:
    """Of the number of sequences that have a draft; None where all do."""
    return Tails(batch_size, acceptance.has_draft) if acceptance.has_draft < 1.0 else None


def _evaluate(
    of_round: RoundCost, acceptance: Acceptance, draft_len: int, tails: Tails | None
) -> Choice:
    batch_size, target = of_round.batch_size, of_round.target
    tokens = 1.0 + acceptance.accepted(draft_len)
    plain = target(0.0)
    seconds = of_round.draft(draft_len)
    if tails is None or not draft_len:
        seconds += target(draft_len)
    else:
        seconds += target.mean_over(draft_len / batch_size, tails)
    rate = batch_size * tokens / seconds
    length = max(1, draft_len)
    added = target(length) - plain + of_round.draft(length)
    pays = min(1.0, max(0.0, rate * added / (batch_size * length)))
    return Choice(batch_size, draft_len, tokens, seconds, rate, pays)
