"""A decision in words and numbers: what each length would give, and why the table changed.

Pure. The quantities are the paper's (Su, Giannoula, Pekhimenko 2023, arXiv 2310.18813), with what
it leaves out: length 0 is always shown, because the question that people ask is what drafting gains
over none.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from policy.acceptance import Acceptance
from policy.optimize import Choice, Decision

MAX_CHANGES = 6
"""Stretches of batch sizes that one line of the history names; the rest is counted."""

Evaluate = Callable[[int, int], Choice]
"""What a batch size and a draft length would give."""


def explain(choices: Sequence[Choice], chosen: int, acceptance: Acceptance) -> str:
    """Why `chosen` is the draft length at the batch size that all `choices` are of.

    Compared are length 0, the neighbours of `chosen` and the best of `choices`. Raises ValueError
    when `choices` are of several batch sizes or lack `chosen`.
    """
    by_length = {choice.draft_len: choice for choice in choices}
    sizes = {choice.batch_size for choice in choices}
    if chosen not in by_length or len(sizes) != 1:
        raise ValueError(
            f"choices must be of one batch size and hold draft length {chosen}, got lengths "
            f"{sorted(by_length)} of batch sizes {sorted(sizes)}"
        )
    in_force = by_length[chosen]
    best = max(choices, key=lambda choice: (choice.tokens_per_second, -choice.draft_len))
    parts = [
        f"at batch {in_force.batch_size} length {chosen}: "
        f"{in_force.tokens_per_round:.2f} tokens a round in {_duration(in_force.round_seconds)}, "
        f"{_rate(in_force.tokens_per_second)}"
    ]
    compared = {0, chosen - 1, chosen + 1, best.draft_len} - {chosen}
    for length in sorted(compared & by_length.keys()):
        other = by_length[length]
        parts.append(
            f"length {length} would give {other.tokens_per_round:.2f} in "
            f"{_duration(other.round_seconds)}, {_rate(other.tokens_per_second)} "
            f"({_change(in_force.tokens_per_second, other.tokens_per_second)})"
        )
    if best.draft_len != chosen:
        parts.append(f"the best is length {best.draft_len}")
    parts.append(f"break-even survival {in_force.min_survival:.2f}")
    parts.append(_acceptance(acceptance, max(by_length)))
    return "; ".join(parts)


def why(previous: Sequence[int], decision: Decision, evaluate: Evaluate) -> str:
    """One line for the history: which lengths changed, and by how much tokens a second rise.

    `previous` holds the length of each batch size from 1 on; sizes that it lacks had length 0.
    Batch sizes in a row that change alike are one stretch, with the mean of their gains.
    """
    changes = [
        (choice.batch_size, before, choice)
        for choice, before in zip(
            decision.choices,
            [*previous, *[0] * (len(decision.choices) - len(previous))],
            strict=False,
        )
        if choice.draft_len != before
    ]
    if not changes:
        return "no length changed"
    starts = [0]
    for index, (left, right) in enumerate(pairwise(changes), start=1):
        alike = (left[1], left[2].draft_len) == (right[1], right[2].draft_len)
        if not alike or right[0] != left[0] + 1:
            starts.append(index)
    stretches = [changes[start:end] for start, end in pairwise([*starts, len(changes)])]
    told = [_stretch(stretch, evaluate) for stretch in stretches[:MAX_CHANGES]]
    if len(stretches) > MAX_CHANGES:
        told.append(f"and {len(stretches) - MAX_CHANGES} more")
    return ", ".join(told)


def _stretch(changes: Sequence[tuple[int, int, Choice]], evaluate: Evaluate) -> str:
    gains = [
        choice.tokens_per_second / evaluate(batch_size, before).tokens_per_second - 1
        for batch_size, before, choice in changes
    ]
    first, last = changes[0], changes[-1]
    sizes = str(first[0]) if first is last else f"{first[0]} to {last[0]}"
    gain = 100 * sum(gains) / len(gains)
    return f"batch {sizes}: {first[1]} -> {first[2].draft_len} ({gain:+.1f} %)"


def _acceptance(acceptance: Acceptance, max_draft_len: int) -> str:
    survival = ", ".join(f"{share:.2f}" for share in acceptance.survival[:max_draft_len])
    drafts = "" if acceptance.has_draft >= 0.995 else f" of the {acceptance.has_draft:.0%} with one"
    rounds = f"{acceptance.rounds:,.0f} rounds"
    # The prior is all there is when nothing has been drafted yet.
    source = f"from {rounds}" if acceptance.rounds >= 0.5 else "assumed, nothing drafted yet"
    return f"acceptance by position {survival or 'unknown'}{drafts} {source}"


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
