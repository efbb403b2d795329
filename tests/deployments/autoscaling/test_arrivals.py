import pytest

from deployments.autoscaling.arrivals import BUCKET_S, Arrivals


def filled(rate: float, seconds: int, begin_s: int = 0, into: Arrivals | None = None) -> Arrivals:
    arrivals = Arrivals() if into is None else into
    for second in range(begin_s, begin_s + seconds):
        arrivals.add(float(second), rate)
    return arrivals


def test_a_steady_rate_is_told() -> None:
    arrivals = filled(7.0, 120)
    assert arrivals.mean(120.0) == pytest.approx(7.0)
    assert arrivals.recent(120.0) == pytest.approx(7.0)


def test_a_step_is_told_whole_within_four_buckets() -> None:
    arrivals = filled(9.0, 12, begin_s=120, into=filled(1.0, 120))
    assert arrivals.recent(120 + 4 * BUCKET_S) == pytest.approx(9.0)


def test_a_burst_counts_as_its_share_of_a_minute() -> None:
    arrivals = filled(1.0, 120)
    arrivals.add(120.0, 60.0)
    assert arrivals.recent(123.0) == pytest.approx(1.0)
    assert arrivals.mean(123.0) == pytest.approx(2.0, rel=0.1)


def test_few_and_large_arrivals_are_seen() -> None:
    arrivals = Arrivals()
    for at_s in range(0, 120, 10):
        arrivals.add(float(at_s), 50.0)
    assert arrivals.mean(119.0) == pytest.approx(5.0, rel=0.1)


def test_after_a_minute_nothing_is_left() -> None:
    arrivals = filled(5.0, 60)
    assert arrivals.mean(90.0) > 0
    assert arrivals.recent(90.0) == 0.0
    assert arrivals.mean(130.0) == 0.0


def test_a_clock_that_goes_back_loses_nothing() -> None:
    arrivals = filled(1.0, 3, begin_s=100)
    arrivals.add(50.0, 3.0)
    assert arrivals.mean(110.0) == pytest.approx(0.1)


def test_what_two_replicas_say_adds_up_when_requests_change_over() -> None:
    before, after = filled(4.0, 60), filled(4.0, 60, begin_s=60)
    for now_s in range(60, 120):
        both = before.mean(now_s) + after.mean(now_s)
        assert both == pytest.approx(4.0, rel=0.06)
        assert before.recent(now_s) + after.recent(now_s) <= 4.0
