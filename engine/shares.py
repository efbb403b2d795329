"""Divides what a step's token budget leaves for prompts among the sequences that have one."""

from collections.abc import Sequence as ReadOnly


def fair_shares(pending: ReadOnly[int], budget: int) -> list[int]:
    """Tokens of each sequence to compute, of `pending` ones each, first come first.

    Each may take half, rounded up, of what those before it left: a long prompt does not hold up a
    short one behind it. What is over then goes to the first that can use it.

    >>> fair_shares([400, 5], budget=64)  # 32 and 5, and the 27 left over
    [59, 5]
    """
    shares: list[int] = []
    rest = budget
    for wanted in pending:
        shares.append(min(wanted, -(-rest // 2)))
        rest -= shares[-1]
    for index, wanted in enumerate(pending):
        over = min(wanted - shares[index], rest)
        shares[index] += over
        rest -= over
    return shares
