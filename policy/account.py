"""A table accounted for: rung by rung, what its lengths give over none. JSON-ready values.

Seconds and tokens are the cost model's and the acceptance's, as `explain` has them: estimates.
"""

from collections.abc import Iterator
from typing import Any

from policy.learner import Learner
from policy.table import UNBOUNDED_BATCH_SIZE, SpeculationTable


def account(table: SpeculationTable, learner: Learner | None) -> dict[str, Any]:
    """ "rungs": each stretch of batch sizes with its lengths, what they give at its first and last
    batch size, and why (at the last). "by_batch_size": what the lengths give from 1 to the most
    that run at once, at powers of two and where rungs begin and end.

    A largest batch size of None is one without bound. Where nothing was measured "at_first",
    "at_last" and "by_batch_size" are empty.
    """
    max_batch = None if learner is None else learner.limits[0]
    rungs = []
    sizes: set[int] = set()
    for first, last, rung in _stretches(table, max_batch):
        # Of an open end the largest batch that can be is told.
        told = [first, max(first, last or max_batch or first)]
        sizes.update(told)
        lengths = table.lengths_of(rung)
        at_first, at_last = (_gain(size, table, learner) for size in told)
        rungs.append(
            {
                "first": first,
                "last": last,
                "draft_len": lengths.longest,
                "modelled": lengths.modelled,
                "looked_up": lengths.looked_up,
                "at_first": at_first,
                "at_last": at_last,
                "why": "no cost was measured yet"
                if learner is None
                else learner.explain(told[1], table),
            }
        )
    if max_batch is not None:
        sizes.update(1 << power for power in range(max_batch.bit_length()))
    gains = [_gain(size, table, learner) for size in sorted(sizes) if size <= (max_batch or 0)]
    return {"rungs": rungs, "by_batch_size": [gain for gain in gains if gain]}


def _stretches(
    table: SpeculationTable, max_batch: int | None
) -> Iterator[tuple[int, int | None, int | None]]:
    """First and last batch size and rung; the last one's end is open, or what a replica can run."""
    first = 1
    for index, (largest, _) in enumerate(table.rungs):
        last = None if largest >= UNBOUNDED_BATCH_SIZE else largest
        yield first, last, index
        if last is None:
            return
        first = last + 1
    if max_batch is None or first <= max_batch:
        yield first, None, None


def _gain(batch_size: int, table: SpeculationTable, learner: Learner | None) -> dict[str, Any]:
    compared = None if learner is None else learner.compare(batch_size, table)
    if compared is None:
        return {}
    chosen, without = compared
    per_token = chosen.round_seconds / chosen.tokens_per_round
    per_token_without = without.round_seconds / without.tokens_per_round
    return {
        "batch_size": batch_size,
        "draft_len": chosen.draft_len,
        "tokens_per_round": chosen.tokens_per_round,
        "seconds_per_token": per_token,
        "seconds_per_token_without": per_token_without,
        "speedup": per_token_without / per_token,
    }
