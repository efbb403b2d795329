"""The tables of docs/metrics.md, from definitions and rules.

`python -m cluster.metrics.reference docs/metrics.md` writes them into it.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cluster.metrics.definitions import METRICS
from cluster.metrics.metric import Group
from cluster.metrics.rules import ALERTS, RECORDINGS
from engine.files import write_text

BEGIN: Final = "<!-- made from cluster/metrics/definitions.py and rules.py -->"
END: Final = "<!-- end -->"


def tables() -> str:
    """Markdown: a table for each group of metrics, one of recorded series, one of alerts."""
    parts = []
    for group in Group:
        rows = [
            (f"`{metric.series}`", metric.kind, metric.unit, _labels(metric.labels), metric.help)
            for metric in METRICS
            if metric.group is group
        ]
        head = ("series", "kind", "unit", "labels", "what it is")
        parts.append(f"### {group}\n\n{_table(head, rows)}")
    recorded = [(f"`{rule.name}`", rule.help) for rule in RECORDINGS]
    parts.append(f"### Recorded by Prometheus\n\n{_table(('series', 'what it is'), recorded)}")
    alerts = [
        (f"`{alert.name}`", alert.severity, alert.lasting, f"`{alert.expr}`", alert.description)
        for alert in ALERTS
    ]
    head = ("alert", "severity", "for", "when", "what to do")
    parts.append(f"### Alerts\n\n{_table(head, alerts)}")
    return "\n\n".join(parts)


def write_into(page: Path) -> None:
    """Replace what stands between the marks. Raises ValueError where there are none."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} must have a line {BEGIN!r} and a line {END!r} below it")
    write_text(page, f"{before}{begin}\n\n{tables()}\n\n{end}{after}")


def _labels(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write_into(Path(sys.argv[1]))
