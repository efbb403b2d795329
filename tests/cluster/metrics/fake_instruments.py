"""Keeps what it is told, by series."""

from collections import defaultdict

from cluster.metrics.metric import Kind, Metric

Labels = tuple[tuple[str, str], ...]


class FakeInstruments:
    """As strict as the real ones: a metric gets the labels of its definition, and no counter
    falls."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self.gauges: dict[str, dict[Labels, float]] = defaultdict(dict)
        self.histograms: dict[str, list[float]] = defaultdict(list)

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        _check(metric, Kind.COUNTER, labels)
        assert amount >= 0
        if amount:
            self.counters[metric.name][tuple(labels.items())] += amount

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        _check(metric, Kind.GAUGE, labels)
        self.gauges[metric.name][tuple(labels.items())] = value

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        _check(metric, Kind.HISTOGRAM, labels)
        self.histograms[metric.name].append(value)

    def total(self, metric: Metric, **labels: str) -> float:
        return self.counters[metric.name].get(tuple(labels.items()), 0.0)

    def by_label(self, metric: Metric) -> dict[str, float]:
        """Of a metric with one label: its values."""
        of = self.counters if metric.kind is Kind.COUNTER else self.gauges
        return {labels[0][1]: value for labels, value in of[metric.name].items()}

    def value(self, metric: Metric) -> float | None:
        return self.gauges[metric.name].get(())


def _check(metric: Metric, kind: Kind, labels: dict[str, str]) -> None:
    assert metric.kind is kind
    assert tuple(labels) == metric.labels
    assert all(isinstance(value, str) for value in labels.values())
