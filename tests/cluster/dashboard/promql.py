"""What an expression of PromQL asks for, as a parser sees it."""

from collections.abc import Iterator
from typing import Any

import promql_parser

from cluster.metrics.definitions import METRICS
from cluster.metrics.metric import REPLICA_LABELS, Kind, Metric

VARIABLES = {"$__rate_interval": "1m"}


def problems(expr: str) -> list[str]:
    """Series that no metric exports, and labels that a series does not have."""
    for variable, value in VARIABLES.items():
        expr = expr.replace(variable, value)
    return list(_walk(promql_parser.parse(expr)))


def series_of(metric: Metric) -> dict[str, set[str]]:
    """What Prometheus has of a metric, with the labels of each."""
    labels = {*REPLICA_LABELS, *metric.labels}
    if metric.kind is Kind.HISTOGRAM:
        return {f"{metric.series}_bucket": {*labels, "le"}, f"{metric.series}_count": labels}
    return {metric.series: labels}


EXPORTED = {
    "up": {"job", "instance"},
    **{series: labels for metric in METRICS for series, labels in series_of(metric).items()},
}


def _walk(node: Any) -> Iterator[str]:
    """A node's own problems, and those of what is below it."""
    match type(node).__name__:
        case "VectorSelector":
            yield from _selected(node)
        case "MatrixSelector":
            yield from _selected(node.vector_selector)
        case "AggregateExpr":
            by = set(node.modifier.labels) if node.modifier else set()
            known = set().union(*(EXPORTED.get(name, set()) for name in _names(node.expr)))
            yield from (f"grouped by {label}, which it has not" for label in sorted(by - known))
            yield from _walk(node.expr)
        case "Call":
            for argument in node.args:
                yield from _walk(argument)
        case "BinaryExpr":
            yield from _walk(node.lhs)
            yield from _walk(node.rhs)
        case "ParenExpr":
            yield from _walk(node.expr)
        case "NumberLiteral":
            pass
        case other:
            raise AssertionError(f"{other}: not known here")


def _selected(selector: Any) -> Iterator[str]:
    labels = EXPORTED.get(selector.name)
    if labels is None:
        yield f"{selector.name} is not exported"
        return
    for matcher in selector.matchers.matchers:
        if matcher.name not in labels:
            yield f"{selector.name} has no label {matcher.name}"


def _names(node: Any) -> set[str]:
    """Of all series below a node."""
    match type(node).__name__:
        case "VectorSelector":
            return {node.name}
        case "MatrixSelector":
            return {node.vector_selector.name}
        case "Call":
            return set().union(*map(_names, node.args))
        case "BinaryExpr":
            return _names(node.lhs) | _names(node.rhs)
        case "AggregateExpr" | "ParenExpr":
            return _names(node.expr)
    return set()
