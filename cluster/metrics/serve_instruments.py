"""Ray Serve's metrics, made from the definitions as they are first needed."""

import logging
from collections.abc import Callable
from typing import Any

from ray.serve.metrics import Counter, Gauge, Histogram

from cluster.metrics.metric import Kind, Metric

logger = logging.getLogger(__name__)


class ServeInstruments:
    """To be used within a Serve replica: Serve labels what is made there with its name.

    Raises nothing: whatever becomes of metrics, requests are to be answered.
    """

    def __init__(self) -> None:
        self._record_of: dict[str, Callable[[float, dict[str, str]], None]] = {}
        """By name of the metric."""

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        if amount:  # Ray refuses nothing
            self._record(metric, amount, labels)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        self._record(metric, value, labels)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._record(metric, value, labels)

    def _record(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        try:
            record = self._record_of.get(metric.name)
            if record is None:
                record = self._record_of[metric.name] = _recorder(metric)
            record(value, labels)
        except Exception:
            logger.exception("%s is no longer exported", metric.name)
            self._record_of[metric.name] = lambda value, labels: None


def _recorder(metric: Metric) -> Callable[[float, dict[str, str]], None]:
    labels: Any = metric.labels  # which Ray declares as a tuple of one
    match metric.kind:
        case Kind.COUNTER:
            return Counter(metric.name, metric.help, labels).inc
        case Kind.GAUGE:
            return Gauge(metric.name, metric.help, labels).set
        case Kind.HISTOGRAM:
            return Histogram(metric.name, metric.help, list(metric.buckets), labels).observe
