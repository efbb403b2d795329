"""What a metric is: name, kind, unit, help, labels, buckets. Imports no Ray."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

RAY_PREFIX: Final = "ray_"

REPLICA_LABELS: Final = ("application", "deployment", "replica")
"""Ray Serve's own, on every series."""


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Group(StrEnum):
    """What a metric is about; the order of docs and dashboards."""

    REQUESTS = "Requests"
    LOAD = "Load"
    MEMORY = "Memory"
    STEPS = "Steps"
    SPECULATION = "Speculation"
    POLICY = "Policy"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Raises ValueError where buckets and kind don't go together."""

    name: str
    kind: Kind
    group: Group
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    """Beside `REPLICA_LABELS`."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's, in `unit`, strictly rising; the last, +Inf, is understood."""

    def __post_init__(self) -> None:
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets):
            raise ValueError(f"{self.name}: a histogram, and nothing else, has buckets")

    @property
    def series(self) -> str:
        """Its name in Prometheus; of a histogram, what `_bucket` and `_count` are added to."""
        return f"{RAY_PREFIX}{self.name}{'_total' if self.kind is Kind.COUNTER else ''}"
