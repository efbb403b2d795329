"""Where numbers go, as whoever has some sees it."""

from typing import Protocol

from cluster.metrics.metric import Metric


class Instruments(Protocol):
    """Takes numbers for metrics, with a value for each of the metric's own labels."""

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        """Raise a counter; by nothing is allowed."""

    def set(self, metric: Metric, value: float, **labels: str) -> None: ...

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """One more value of a histogram."""
