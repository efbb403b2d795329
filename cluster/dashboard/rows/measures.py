"""Measures that several rows show."""

from typing import Final

from cluster.dashboard.panel import Query
from cluster.dashboard.promql import Expression, now, or_zero, quantile, rate, ratio
from cluster.metrics import definitions as defined
from cluster.metrics.metric import Metric

BY_REPLICA: Final = ("replica",)

TOKENS_PER_SECOND: Final = rate(defined.GENERATION_TOKENS)
STEP_SECONDS: Final = (
    or_zero(rate(defined.DRAFT_SECONDS))
    + rate(defined.TARGET_SECONDS)
    + rate(defined.VERIFY_SECONDS)
)
"""Of a second, what steps take; with several replicas up to as many."""


def quantiles(metric: Metric) -> tuple[Query, ...]:
    return tuple(Query(quantile(q, metric), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99))


def per_step(metric: Metric, unit: str) -> Expression:
    return ratio(rate(metric), rate(defined.STEPS), unit)


def acceptance(by: tuple[str, ...] = ()) -> Expression:
    """Share of the verified draft tokens that was accepted."""
    return _kept(defined.NUM_ACCEPTED_TOKENS, defined.NUM_DRAFT_TOKENS, by)


def acceptance_by_position() -> Expression:
    """The same for each place in a draft."""
    return _kept(
        defined.NUM_ACCEPTED_TOKENS_PER_POS, defined.NUM_DRAFT_TOKENS_PER_POS, ("position",)
    )


def kv_used(by: tuple[str, ...] = ()) -> Expression:
    return ratio(now(defined.KV_BLOCKS_USED, by=by), now(defined.KV_BLOCKS, by=by))


def _kept(accepted: Metric, verified: Metric, by: tuple[str, ...]) -> Expression:
    below = rate(verified, by)
    return ratio(or_zero(rate(accepted, by), below), below)
