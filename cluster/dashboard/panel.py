"""What a panel and a row of panels are, as data."""

from dataclasses import dataclass
from enum import StrEnum

from cluster.dashboard.promql import Expression
from cluster.metrics.metric import Metric


class Look(StrEnum):
    """How a panel shows its queries; the values are Grafana's names of its plugins."""

    LINES = "timeseries"
    NUMBER = "stat"
    HEATMAP = "heatmap"


@dataclass(frozen=True, slots=True)
class Query:
    expression: Expression
    legend: str = "__auto"
    """`{{label}}` stands for a label's value."""


@dataclass(frozen=True, slots=True)
class Panel:
    """All queries have one unit. Raises ValueError where they don't."""

    id: int
    """Never changed and never given to another: links and alerts lead here by it."""
    title: str
    says: str
    """What is to be seen here; the metrics' own help is added to it."""
    queries: tuple[Query, ...]
    look: Look = Look.LINES
    width: int = 8
    """Of 24."""
    leads_to: tuple[str, ...] = ()
    """Titles of panels that tell more."""

    def __post_init__(self) -> None:
        if len({query.expression.unit for query in self.queries}) != 1:
            raise ValueError(f"{self.title}: queries of several units, or none")

    @property
    def unit(self) -> str:
        return self.queries[0].expression.unit

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What it shows, each once."""
        return tuple(
            dict.fromkeys(metric for query in self.queries for metric in query.expression.metrics)
        )


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    title: str
    panels: tuple[Panel, ...]
