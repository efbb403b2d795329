"""What is told of a request at its end."""

from cluster.metrics import definitions as defined
from cluster.metrics.definitions import Outcome
from cluster.metrics.requests import RequestMetrics, RequestRecord
from tests.cluster.metrics.fake_instruments import FakeInstruments


def test_a_request_that_was_finished() -> None:
    told = FakeInstruments()
    RequestMetrics(told).record(
        RequestRecord(Outcome.FINISHED, 2.0, 0.5, queue_s=(0.1, 0.2), per_token_s=(0.03,))
    )
    assert told.by_label(defined.REQUESTS) == {"finished": 1}
    assert told.histograms == {
        defined.TIME_TO_FIRST_TOKEN.name: [0.5],
        defined.QUEUE_TIME.name: [0.1, 0.2],
        defined.END_TO_END.name: [2.0],
        defined.TIME_PER_OUTPUT_TOKEN.name: [0.03],
    }


def test_one_that_was_given_up_tells_how_long_it_waited_but_no_length() -> None:
    told = FakeInstruments()
    RequestMetrics(told).record(RequestRecord(Outcome.GONE, 2.0, 0.5, (0.1,), (0.03,)))
    assert told.by_label(defined.REQUESTS) == {"gone": 1}
    assert told.histograms == {
        defined.TIME_TO_FIRST_TOKEN.name: [0.5],
        defined.QUEUE_TIME.name: [0.1],
    }


def test_one_that_was_refused_is_counted() -> None:
    told = FakeInstruments()
    metrics = RequestMetrics(told)
    for outcome in (Outcome.FULL, Outcome.FULL, Outcome.INVALID):
        metrics.record(RequestRecord(outcome))
    assert told.by_label(defined.REQUESTS) == {"full": 2, "invalid": 1}
    assert told.histograms == {}
