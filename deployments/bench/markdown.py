"""Markdown of reports: tables, and where a run was made."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deployments.bench.results import Goal


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """With every column but the first aligned to the right."""
    lines = [
        "| " + " | ".join(columns) + " |",
        "|" + "|".join(["---", *["---:"] * (len(columns) - 1)]) + "|",
        *("| " + " | ".join(map(str, row)) + " |" for row in rows),
    ]
    return "\n".join(lines)


def where(document: Mapping[str, Any]) -> str:
    """Hardware, versions and commit of a run, and whether all of it was measured."""
    environment = document["environment"]
    machine = environment["gpu"] or f"{environment['cpu']}, {environment['cores']} cores"
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    plan = document["plan"]
    lines = [
        f"{machine} ({environment['cpu_capability']}, "
        f"{environment['memory_bytes'] / 2**30:.0f} GiB, {environment['torch_threads']} threads); "
        f"Python {environment['python']}, {versions}; commit {environment['commit'] or 'unknown'}.",
        f"Model {plan['model']}"
        + (f", weights in {plan['dtype']}" if plan.get("dtype") else "")
        + (f", drafter {plan['drafter']}" if plan.get("drafter") else "")
        + ".",
    ]
    if not document["is_complete"]:
        lines.append("**Stopped before its end: what follows is a part.**")
    return "\n\n".join(lines)


def goals_table(goals: Sequence[Goal]) -> str:
    return table(
        ("goal", "wanted", "measured", "holds"),
        [(g.name, g.goal, f"{g.measured:.3f}", "yes" if g.holds else "**no**") for g in goals],
    )
