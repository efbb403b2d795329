"""From cost and acceptance to draft lengths for each batch size. Pure.

What is maximised is tokens per second: of all sequences, in a round, over the seconds of the round,
as in T(b, s) of Su, Giannoula, Pekhimenko 2023 (arXiv 2310.18813), with measured seconds in the
place of its straight lines, and 0 among the lengths. Where some drafts are made by a model and
others looked up in the text, each kind has a length of its own: what is kept of them differs, and
only the former take time to make.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from policy.acceptance import Acceptance
from policy.cost import CostModel, RoundCost
from policy.lines import Tails
from policy.table import Lengths

THRIFT = 0.01
"""What the shortest of nearly equal lengths may lose."""
_SHORTER = 1 / 3
_MOST_TURNS = 20
"""Of the search for two lengths; three or four are enough."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What draft lengths give at a batch size."""

    batch_size: int
    lengths: Lengths
    tokens_per_round: float
    """Of each sequence."""
    round_seconds: float
    tokens_per_second: float
    """Of the whole batch."""
    min_survival: tuple[float, float]
    """How likely one more draft token must be kept to pay, at this pace: one that a model makes,
    and one that is looked up."""

    @property
    def draft_len(self) -> int:
        """Of the longest draft."""
        return self.lengths.longest


@dataclass(frozen=True, slots=True)
class Decision:
    """The lengths of each batch size."""

    choices: tuple[Choice, ...]
    """Of batch size 1, 2, ..."""
    changed: tuple[int, ...]
    """Batch sizes whose lengths are others than before."""

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(choice.draft_len for choice in self.choices)


def evaluate(
    cost: CostModel,
    acceptance: Acceptance,
    batch_size: int,
    lengths: Lengths | int,
    context: float,
) -> Choice:
    """Tokens and seconds of a round in which each of `batch_size` sequences is asked for a draft
    of so many tokens (a number: whoever makes it); a sequence has one with probability
    `acceptance.has_draft`."""
    if isinstance(lengths, int):
        lengths = Lengths(lengths, lengths)
    return Rounds(cost, acceptance, batch_size, lengths.longest, context).choice(lengths)


def decide(
    cost: CostModel,
    acceptance_of: Callable[[int], Acceptance],
    *,
    max_batch: int,
    max_len: int,
    context: float,
    previous: Callable[[int], Lengths] | None,
    min_gain: float,
) -> Decision:
    """Lengths for each batch size up to `max_batch`.

    Of those that are as good as the best, but for a hundredth, the shortest are taken: they lose
    least when the traffic is not what it was. What was chosen before (`previous`) stays unless
    another gives more than `min_gain` more, so that noise makes no changes; shorter drafts need a
    third of that.
    """
    choices, changed = [], []
    for batch_size in range(1, max_batch + 1):
        rounds = Rounds(cost, acceptance_of(batch_size), batch_size, max_len, context)
        best = rounds.best()
        choice = rounds.thrifty(best)
        if previous is not None:
            before = previous(batch_size)
            held = rounds.choice(Lengths(*(min(length, max_len) for length in before)))
            if not _is_worth(choice, held, min_gain):
                # What thrift gave away may be what is missing.
                choice = best if _is_worth(best, held, min_gain) else held
            if choice.lengths != before:
                changed.append(batch_size)
        choices.append(choice)
    return Decision(tuple(choices), tuple(changed))


def _is_worth(choice: Choice, held: Choice, min_gain: float) -> bool:
    is_shorter = all(map(operator.le, choice.lengths, held.lengths))
    least = 1.0 + (_SHORTER if is_shorter else 1.0) * min_gain
    return choice.tokens_per_second > least * held.tokens_per_second


def rungs_of(decision: Decision) -> tuple[tuple[int, int], ...]:
    """As a table has them: the largest batch size of each stretch with its longest draft."""
    rungs: list[Choice] = []
    for choice in decision.choices:
        if rungs and rungs[-1].lengths == choice.lengths:
            rungs.pop()
        rungs.append(choice)
    if rungs and rungs[-1].draft_len == 0:
        rungs.pop()
    return tuple((choice.batch_size, choice.draft_len) for choice in rungs)


class Rounds:
    """What rounds of one batch size give and take, by length, up to `max_len`."""

    def __init__(
        self,
        cost: CostModel,
        acceptance: Acceptance,
        batch_size: int,
        max_len: int,
        context: float,
    ) -> None:
        of_round = cost.at(batch_size, context)
        self._batch_size = batch_size
        self._of_round = of_round
        self._lengths = range(max_len + 1)
        self._drafting = [of_round.draft(s) for s in self._lengths]
        self._seconds = _target_seconds(of_round, acceptance.has_draft, max_len)
        self.acceptance = acceptance
        sources = acceptance.sources
        if not sources[1].has_draft or not acceptance.has_draft:
            # Of one kind: the other's length is the same, and matters as little.
            self._shares = (1.0, 0.0)
            kept = _kept(acceptance.has_draft, acceptance.survival, max_len)
            self._kept = (kept, [0.0] * (max_len + 1))
        else:
            self._shares = (
                sources[0].has_draft / acceptance.has_draft,
                sources[1].has_draft / acceptance.has_draft,
            )
            self._kept = (
                _kept(sources[0].has_draft, sources[0].survival, max_len),
                _kept(sources[1].has_draft, sources[1].survival, max_len),
            )

    def choice(self, lengths: Lengths) -> Choice:
        """Of lengths up to the longest."""
        modelled, looked_up = lengths
        tokens = 1.0 + self._kept[0][modelled] + self._kept[1][looked_up]
        seconds = (
            self._shares[0] * self._seconds[modelled]
            + self._shares[1] * self._seconds[looked_up]
            + self._drafting[modelled]
        )
        rate = self._batch_size * tokens / seconds
        pays = (
            self._pays(rate, modelled, with_drafting=True),
            self._pays(rate, looked_up, with_drafting=False),
        )
        return Choice(self._batch_size, lengths, tokens, seconds, rate, pays)

    def alike(self) -> list[Choice]:
        """Entry s: s tokens, whoever makes the draft."""
        return [self.choice(Lengths(s, s)) for s in self._lengths]

    def best(self) -> Choice:
        """The lengths that give most; of equals the shortest."""
        found = max(self.alike(), key=lambda choice: (choice.tokens_per_second, -choice.draft_len))
        if not self._shares[1]:
            return found
        # Dinkelbach's way to the best ratio of sums (Dinkelbach 1967, On nonlinear fractional
        # programming): at a pace, each length by itself has the most tokens beyond what its seconds
        # are worth; these lengths' own pace is never less, and no other has more when it stays.
        for _ in range(_MOST_TURNS):
            pace = found.tokens_per_second / self._batch_size
            lengths = Lengths(
                self._most_beyond(pace, 0, self._drafting),
                self._most_beyond(pace, 1, [0.0] * len(self._lengths)),
            )
            other = self.choice(lengths)
            if other.tokens_per_second <= found.tokens_per_second * (1.0 + 1e-12):
                break
            found = other
        return found

    def thrifty(self, best: Choice) -> Choice:
        """The shortest lengths that are nearly as good as the best."""
        found = best
        least = best.tokens_per_second / (1.0 + THRIFT)
        for source in (0, 1):
            if source and not self._shares[1]:
                break
            for length in range(found.lengths[source]):
                shorter = found.lengths._replace(**{found.lengths._fields[source]: length})
                choice = self.choice(shorter if self._shares[1] else Lengths(length, length))
                if choice.tokens_per_second >= least:
                    found = choice
                    break
        return found

    def _most_beyond(self, pace: float, source: int, making: Sequence[float]) -> int:
        kept, share = self._kept[source], self._shares[source]

        def beyond(s: int) -> float:
            return kept[s] - pace * (share * self._seconds[s] + making[s])

        return max(self._lengths, key=lambda s: (beyond(s), -s))

    def _pays(self, rate: float, length: int, *, with_drafting: bool) -> float:
        length = max(1, length)
        target = self._of_round.target
        added = target(length) - target(0.0)
        if with_drafting:
            added += self._of_round.draft(length)
        return min(1.0, max(0.0, rate * added / (self._batch_size * length)))


def _kept(has_draft: float, survival: Sequence[float], max_len: int) -> list[float]:
    """Entry s: tokens kept of drafts of s tokens, in a round."""
    unknown = [0.0] * (max_len - len(survival))
    return [has_draft * k for k in accumulate([*survival[:max_len], *unknown], initial=0.0)]


def _target_seconds(of_round: RoundCost, has_draft: float, max_len: int) -> list[float]:
    """Entry s: mean seconds of a target pass if each sequence has a draft of s tokens with
    probability `has_draft`."""
    target, batch_size = of_round.target, of_round.batch_size
    if has_draft >= 1.0:
        return [target(float(s)) for s in range(max_len + 1)]
    tails = Tails(batch_size, has_draft)
    lengths = range(1, max_len + 1)
    return [target(0.0), *(target.mean_over(s / batch_size, tails) for s in lengths)]
