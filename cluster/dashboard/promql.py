"""Expressions of PromQL over the defined metrics, with the unit of what they give.

All of them ask for the replicas that are chosen at the top of the dashboard. A rate is per second,
over the interval that Grafana takes for the width of a panel.
"""

from dataclasses import dataclass
from typing import Final

from cluster.metrics import definitions as defined
from cluster.metrics.metric import REPLICA_LABELS, Kind, Metric

SHARE: Final = "share"
"""Unit of a part of a whole: 0 to 1."""
INTERVAL: Final = "$__rate_interval"
_PER_SECOND: Final = "/s"


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    unit: str
    metrics: tuple[Metric, ...]
    """What it is made of, each once."""

    def __add__(self, other: "Expression") -> "Expression":
        """Raises ValueError where one is seconds and the other tokens."""
        if self.unit != other.unit:
            raise ValueError(f"{self.unit} and {other.unit} don't add up")
        text = f"{_bracketed(self, 'or')} + {_bracketed(other, 'or')}"
        return Expression(text, self.unit, _joined(self, other))


def selector(series: str, **labels: str) -> str:
    """`series` of the chosen replicas.

    >>> selector("up", outcome="full")
    'up{application=~"$application",deployment=~"$deployment",replica=~"$replica",outcome="full"}'
    """
    chosen = [f'{label}=~"${label}"' for label in REPLICA_LABELS]
    exact = [f'{label}="{value}"' for label, value in labels.items()]
    return f"{series}{{{','.join([*chosen, *exact])}}}"


def rate(metric: Metric, by: tuple[str, ...] = (), **labels: str) -> Expression:
    """How fast a counter grows, summed but for `by`."""
    _want(metric, Kind.COUNTER, by, labels)
    grown = f"rate({selector(metric.series, **labels)}[{INTERVAL}])"
    return Expression(f"sum{_by(by)}({grown})", f"{metric.unit}{_PER_SECOND}", (metric,))


def now(metric: Metric, aggregate: str = "sum", by: tuple[str, ...] = ()) -> Expression:
    """A gauge's value, aggregated but for `by`."""
    _want(metric, Kind.GAUGE, by, {})
    return Expression(f"{aggregate}{_by(by)}({selector(metric.series)})", metric.unit, (metric,))


def quantile(share: float, metric: Metric) -> Expression:
    """Of a histogram, what `share` of the observations stays below: linear within a bucket."""
    _want(metric, Kind.HISTOGRAM, (), {})
    text = f"histogram_quantile({share:g}, {_buckets('rate', metric)})"
    return Expression(text, metric.unit, (metric,))


def buckets(metric: Metric) -> Expression:
    """Of a histogram, the observations up to each bound `le`."""
    _want(metric, Kind.HISTOGRAM, (), {})
    return Expression(_buckets("increase", metric), metric.unit, (metric,))


def ratio(above: Expression, below: Expression, unit: str | None = None) -> Expression:
    """A quotient; a share where both have one unit. Raises ValueError where they don't, and no
    `unit` is named."""
    if unit is None:
        if above.unit != below.unit:
            raise ValueError(f"what is {above.unit} over {below.unit}?")
        unit = SHARE
    text = f"{_bracketed(above, '+', 'or')} / {_bracketed(below, '+', 'or')}"
    return Expression(text, unit, _joined(above, below))


def or_zero(expression: Expression, there: Expression | None = None) -> Expression:
    """The same, and 0 where `there` is something (by default: a replica) but what is counted has
    never happened: Ray exports a counter from its first increment on."""
    known = now(defined.KV_BLOCKS) if there is None else there
    text = f"{expression.text} or 0 * {_bracketed(known, '+', '/', 'or')}"
    return Expression(text, expression.unit, expression.metrics)


def number_of_replicas() -> Expression:
    """Each has one pool of blocks."""
    return Expression(
        f"count({selector(defined.KV_BLOCKS.series)})", "replicas", (defined.KV_BLOCKS,)
    )


def _buckets(function: str, metric: Metric) -> str:
    return f"sum by (le) ({function}({selector(f'{metric.series}_bucket')}[{INTERVAL}]))"


def _want(metric: Metric, kind: Kind, by: tuple[str, ...], labels: dict[str, str]) -> None:
    if metric.kind is not kind:
        raise ValueError(f"{metric.name} is a {metric.kind}, no {kind}")
    unknown = {*by, *labels} - {*metric.labels, *REPLICA_LABELS}
    if unknown:
        raise ValueError(f"{metric.name} has no label {', '.join(sorted(unknown))}")


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""


def _bracketed(expression: Expression, *operators: str) -> str:
    """In brackets if it has one of those that bind less."""
    text = expression.text
    return f"({text})" if any(f" {operator} " in text for operator in operators) else text


def _joined(*expressions: Expression) -> tuple[Metric, ...]:
    return tuple(dict.fromkeys(m for expression in expressions for m in expression.metrics))
