"""Expressions carry the right unit, and what makes no sense is refused."""

import pytest

from cluster.dashboard.panel import Panel, Query
from cluster.dashboard.promql import SHARE, Expression, buckets, now, or_zero, quantile, rate, ratio
from cluster.metrics import definitions as defined
from tests.cluster.dashboard.promql import problems

CHOSEN = 'application=~"$application",deployment=~"$deployment",replica=~"$replica"'


def test_units_follow_from_the_definitions() -> None:
    tokens, drafts = rate(defined.NUM_DRAFT_TOKENS), rate(defined.NUM_DRAFTS)
    assert tokens.unit == "tokens/s"
    assert ratio(rate(defined.NUM_ACCEPTED_TOKENS), tokens).unit == SHARE
    assert ratio(tokens, drafts, "tokens").unit == "tokens"
    assert quantile(0.5, defined.QUEUE_TIME).unit == buckets(defined.QUEUE_TIME).unit == "seconds"
    assert now(defined.KV_BLOCKS).unit == "blocks"
    assert (rate(defined.DRAFT_SECONDS) + rate(defined.TARGET_SECONDS)).unit == "seconds/s"


def test_what_makes_no_sense_is_refused() -> None:
    tokens, drafts = rate(defined.NUM_DRAFT_TOKENS), rate(defined.NUM_DRAFTS)
    with pytest.raises(ValueError, match="don't add up"):
        tokens + drafts
    with pytest.raises(ValueError, match="tokens/s over drafts/s"):
        ratio(tokens, drafts)
    with pytest.raises(ValueError, match="is a gauge, no counter"):
        rate(defined.KV_BLOCKS)
    with pytest.raises(ValueError, match="no label position"):
        rate(defined.STEPS, ("position",))
    with pytest.raises(ValueError, match="no label tenant"):
        rate(defined.REQUESTS, tenant="a")
    with pytest.raises(ValueError, match="several units"):
        Panel(1, "both", "", (Query(tokens), Query(drafts)))


def test_only_the_chosen_replicas_are_asked_for() -> None:
    text = rate(defined.REQUESTS, ("outcome",), outcome="full").text
    series = f'ray_paceline_requests_total{{{CHOSEN},outcome="full"}}'
    assert text == f"sum by (outcome) (rate({series}[$__rate_interval]))"


def test_operators_bind_as_they_are_written() -> None:
    one, other = Expression("a or b", "x", ()), Expression("c + d", "x", ())
    assert (one + other).text == "(a or b) + c + d"
    assert ratio(one, other).text == "(a or b) / (c + d)"
    assert or_zero(one, other).text == "a or b or 0 * (c + d)"


def test_the_check_of_expressions_finds_what_is_wrong() -> None:
    assert problems("sum by (replica) (rate(ray_paceline_steps_total[1m])) / 2") == []
    assert problems("ray_paceline_steps > 0") == ["ray_paceline_steps is not exported"]
    assert problems('ray_paceline_kv_blocks{le="1"}') == ["ray_paceline_kv_blocks has no label le"]
    assert problems("sum by (le) (up)") == ["grouped by le, which it has not"]
    with pytest.raises(ValueError):
        problems("sum by (replica (up)")
