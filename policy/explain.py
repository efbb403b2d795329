"""A decision in words and numbers: what each length would give, and why the table changed.

Pure. The quantities are the paper's (Su, Giannoula, Pekhimenko 2023, arXiv 2310.18813), with what
it leaves out: length 0 is always shown, because the question that people ask is what drafting gains
over none.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from policy.acceptance import Acceptance
from policy.optimize import Choice, Decision
from policy.table import Lengths

MAX_CHANGES = 6
"""Stretches of batch sizes that one line of the history names; the rest is counted."""

Evaluate = Callable[[int, Lengths], Choice]
"""What a batch size and draft lengths would give."""


def explain(in_force: Choice, best: Choice, alike: Sequence[Choice], acceptance: Acceptance) -> str:
    """Why `in_force` is the choice at its batch size, and not `best`, or one of `alike`: what one
    length for all drafts would give.

    Of those, length 0, the neighbours of the length in force and the best are told. Raises
    ValueError when the choices are of several batch sizes.
    """
    sizes = {choice.batch_size for choice in (in_force, best, *alike)}
    if len(sizes) != 1:
        raise ValueError(f"choices must be of one batch size, got {sorted(sizes)}")
    chosen = in_force.draft_len
    parts = [
        f"at batch {in_force.batch_size} length {in_force.lengths}: "
        f"{in_force.tokens_per_round:.2f} tokens a round in {_duration(in_force.round_seconds)}, "
        f"{_rate(in_force.tokens_per_second)}"
    ]
    fastest = max(alike, key=lambda choice: (choice.tokens_per_second, -choice.draft_len))
    compared = {0, chosen - 1, chosen + 1, fastest.draft_len}
    others = [choice for choice in alike if choice.draft_len in compared]
    if best.lengths.modelled != best.lengths.looked_up:
        others.append(best)
    for other in others:
        if other.lengths != in_force.lengths:
            parts.append(
                f"length {other.lengths} would give {other.tokens_per_round:.2f} in "
                f"{_duration(other.round_seconds)}, {_rate(other.tokens_per_second)} "
                f"({_change(in_force.tokens_per_second, other.tokens_per_second)})"
            )
    if best.lengths != in_force.lengths:
        parts.append(f"the best is length {best.lengths}")
    modelled, looked_up = in_force.min_survival
    parts.append(f"break-even survival {modelled:.2f}, looked up {looked_up:.2f}")
    parts.append(_acceptance(acceptance, max(choice.draft_len for choice in alike)))
    return "; ".join(parts)


def why(previous: Sequence[Lengths], decision: Decision, evaluate: Evaluate) -> str:
    """One line for the history: which lengths changed, and by how much tokens a second rise.

    `previous` holds the lengths of each batch size from 1 on; sizes that it lacks had none.
    Batch sizes in a row that change alike are one stretch, with the mean of their gains.
    """
    changes = [
        (choice.batch_size, before, choice)
        for choice, before in zip(
            decision.choices,
            [*previous, *[Lengths(0, 0)] * (len(decision.choices) - len(previous))],
            strict=False,
        )
        if choice.lengths != before
    ]
    if not changes:
        return "no length changed"
    starts = [0]
    for index, (left, right) in enumerate(pairwise(changes), start=1):
        alike = (left[1], left[2].lengths) == (right[1], right[2].lengths)
        if not alike or right[0] != left[0] + 1:
            starts.append(index)
    stretches = [changes[start:end] for start, end in pairwise([*starts, len(changes)])]
    told = [_stretch(stretch, evaluate) for stretch in stretches[:MAX_CHANGES]]
    if len(stretches) > MAX_CHANGES:
        told.append(f"and {len(stretches) - MAX_CHANGES} more")
    return ", ".join(told)


def _stretch(changes: Sequence[tuple[int, Lengths, Choice]], evaluate: Evaluate) -> str:
    gains = [
        choice.tokens_per_second / evaluate(batch_size, before).tokens_per_second - 1
        for batch_size, before, choice in changes
    ]
    first, last = changes[0], changes[-1]
    sizes = str(first[0]) if first is last else f"{first[0]} to {last[0]}"
    gain = 100 * sum(gains) / len(gains)
    return f"batch {sizes}: {first[1]} -> {first[2].lengths} ({gain:+.1f} %)"


def _acceptance(acceptance: Acceptance, max_draft_len: int) -> str:
    def told(survival: Sequence[float]) -> str:
        return ", ".join(f"{share:.2f}" for share in survival[:max_draft_len]) or "unknown"

    drafts = "" if acceptance.has_draft >= 0.995 else f" of the {acceptance.has_draft:.0%} with one"
    rounds = f"{acceptance.rounds:,.0f} rounds"
    # The prior is all there is when nothing has been drafted yet.
    source = f"from {rounds}" if acceptance.rounds >= 0.5 else "assumed, nothing drafted yet"
    found = f"acceptance by position {told(acceptance.survival)}{drafts} {source}"
    modelled, looked_up = acceptance.sources
    if not looked_up.has_draft:
        return found
    return (
        f"{found}: {told(modelled.survival)} in the {modelled.has_draft:.0%} that a model drafts, "
        f"{told(looked_up.survival)} in the {looked_up.has_draft:.0%} looked up"
    )


def _duration(seconds: float) -> str:
    """In three digits or so, the unit chosen to fit.

    >>> _duration(0.0842), _duration(0.00123), _duration(2.5)
    ('84 ms', '1.23 ms', '2.50 s')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    milliseconds = 1000 * seconds
    decimals = 0 if milliseconds >= 20 else 1 if milliseconds >= 10 else 2
    return f"{milliseconds:.{decimals}f} ms"


def _rate(tokens_per_second: float) -> str:
    decimals = 0 if tokens_per_second >= 20 else 1
    return f"{tokens_per_second:,.{decimals}f} tokens/s"


def _change(from_rate: float, to_rate: float) -> str:
    percent = 100 * (to_rate / from_rate - 1)
    decimals = 0 if abs(percent) >= 2 else 1
    return f"{percent:+.{decimals}f} %"
