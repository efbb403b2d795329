"""Figures of answers that can be worked out by hand."""

import pytest

from deployments.bench.answers import Answer, Slo, Summary


def answer(latency_s: float, *, ttft_s: float = 0.5, tokens: int = 11, due_s: float = 0) -> Answer:
    return Answer(due_s, due_s + 0.1, due_s + ttft_s, due_s + latency_s, 20, tokens)


FAILED = Answer(4.0, 4.0, error="503: full")


def test_percentiles_rates_and_goodput() -> None:
    segments = [[answer(float(n)) for n in range(1, 101)], [answer(100.0), FAILED]]
    told = Summary.of(segments, Slo(latency_s=50.0))
    assert told.latency is not None
    assert (told.latency.mean, told.latency.p50) == pytest.approx((5150 / 101, 51.0))
    assert (told.latency.p95, told.latency.p99) == pytest.approx((96.0, 100.0))
    assert told.ttft is not None
    assert told.ttft.mean == pytest.approx(0.5)
    assert told.tpot is not None
    assert told.tpot.p50 == pytest.approx((51.0 - 0.5) / 10)
    assert (told.requests, told.failed, told.errors) == (102, 1, {"503: full": 1})
    # Each segment took 100 s to its last answer.
    assert told.tokens_per_second == pytest.approx(101 * 11 / 200)
    assert told.good_share == pytest.approx(50 / 102)
    assert told.goodput == pytest.approx(50 / 200)
    assert told.late is not None
    assert told.late.p50 == pytest.approx(0.1)


def test_times_count_from_when_a_request_was_due() -> None:
    one = answer(3.0, ttft_s=1.0, tokens=5, due_s=40.0)
    assert (one.latency_s, one.ttft_s, one.tpot_s) == pytest.approx((3.0, 1.0, 0.5))


@pytest.mark.parametrize(
    ("slo", "holds"),
    [
        (Slo(), True),
        (Slo(ttft_s=0.5, tpot_s=0.25, latency_s=3.0), True),
        (Slo(ttft_s=0.4), False),
        (Slo(tpot_s=0.2), False),
        (Slo(latency_s=2.9), False),
    ],
)
def test_every_limit_of_an_slo_counts(slo: Slo, holds: bool) -> None:
    assert slo.holds(answer(3.0)) is holds
    assert not slo.holds(FAILED)


def test_the_time_in_which_a_request_hung_counts() -> None:
    """Without a token, or after some: it is over when the client gives it up."""
    for hung in (
        Answer(1.0, 1.0, error="no whole answer within 300 s", ended_s=301.0),
        Answer(1.0, 1.0, 2.0, 3.0, error="no whole answer within 300 s", ended_s=301.0),
    ):
        told = Summary.of([[answer(10.0), hung]], Slo())
        assert told.goodput == told.requests_per_second == pytest.approx(1 / 301)
        assert told.tokens_per_second == pytest.approx(11 / 301)


def test_nothing_but_failures_is_told_as_such() -> None:
    told = Summary.of([[FAILED]], Slo())
    assert (told.latency, told.ttft, told.goodput, told.failed) == (None, None, 0.0, 1)
