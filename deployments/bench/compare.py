"""Two runs that measured the same, side by side: ratios with their spread."""

import statistics
from collections.abc import Mapping
from typing import Any

from deployments.bench.characterize import points_from_json
from deployments.bench.characterize_report import CHARACTERIZE
from deployments.bench.markdown import table
from deployments.bench.paper_model import PaperModel
from deployments.bench.results import Spread
from deployments.bench.work import first_difference
from engine.errors import ConfigError

_HARDWARE = ("cpu", "cores", "gpu")
_MAY_DIFFER = ("server", "drafter_settings", "notes", "arms", "seed", "device")
"""Of a plan: what two runs are compared for, and what the digest of the arrivals or the machine
tells better."""


def compare(before: Mapping[str, Any], after: Mapping[str, Any], *, across_machines: bool) -> str:
    """Markdown of B over A. Raises ConfigError where they are not alike."""
    _require_alike(before, after, across_machines=across_machines)
    try:
        told = (
            _characterized(before, after)
            if before["benchmark"] == CHARACTERIZE
            else _traffic(before, after)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"a file lacks what `paceline bench` writes: {error!r}") from None
    heads = [_commit(document) for document in (before, after)]
    return "\n\n".join([f"B (commit {heads[1]}) over A (commit {heads[0]}).", *told])


def _require_alike(
    before: Mapping[str, Any], after: Mapping[str, Any], *, across_machines: bool
) -> None:
    for name, document in (("A", before), ("B", after)):
        missing = {"benchmark", "plan", "environment", "is_complete"} - document.keys()
        if missing:
            raise ConfigError(f"{name} holds no results of `paceline bench`: no {min(missing)}")
        if not document["is_complete"]:
            # Its figures are of other segments or repeats than those of a whole run.
            raise ConfigError(
                f"{name} was stopped before its end: give the command that made it once more, "
                "which completes it"
            )
    both = [
        {
            "benchmark": document["benchmark"],
            **{key: v for key, v in document["plan"].items() if key not in _MAY_DIFFER},
            "SLO": document.get("slo"),
        }
        for document in (before, after)
    ]
    difference = first_difference(both[0], both[1])
    if difference is not None:
        raise ConfigError(f"these runs did not measure the same: {difference}")
    machines = [
        {key: document["environment"].get(key) for key in _HARDWARE} for document in (before, after)
    ]
    difference = first_difference(machines[0], machines[1])
    if difference is not None and not across_machines:
        raise ConfigError(
            f"these runs are of two machines: {difference}; --across-machines compares them "
            "all the same"
        )


def _characterized(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    models = [PaperModel(points_from_json(dict(document))) for document in (before, after)]
    a, b = models
    rows = []
    for size in a.batch_sizes:
        if size not in b.batch_sizes:
            continue
        best = [model.best(size) for model in models]
        rows.append(
            (
                size,
                *(f"{one.draft_len} ({1e3 * one.seconds_per_token:.1f} ms)" for one in best),
                str(_by_repeat(before, after, size, 0)),
                f"{best[1].seconds_per_token / best[0].seconds_per_token:.3g}",
            )
        )
    if not rows:
        raise ConfigError("no batch size was measured by both")
    columns = ("b", "best s in A", "in B", "time per token at s = 0, B / A", "at each one's best")
    return [table(columns, rows), "Below 1 B is faster; least to most over the repeats."]


def _by_repeat(
    before: Mapping[str, Any], after: Mapping[str, Any], size: int, length: int
) -> Spread:
    times = [
        {
            point.repeat: point.seconds_per_token
            for point in points_from_json(dict(document))
            if (point.batch_size, point.draft_len) == (size, length)
        }
        for document in (before, after)
    ]
    both = times[0].keys() & times[1].keys()
    return Spread.of([times[1][repeat] / times[0][repeat] for repeat in sorted(both)])


def _traffic(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    rows, ratios = [], []
    later = {one["digest"]: one for one in after["settings"]}
    for setting in before["settings"]:
        other = later.get(setting["digest"])
        if other is None:
            continue
        for arm, a in setting["arms"].items():
            b = other["arms"].get(arm)
            if b is None or not a["latency"] or not b["latency"]:
                continue
            parts = [
                y["mean_latency_s"] / x["mean_latency_s"]
                for x, y in zip(a["segments"], b["segments"], strict=True)
                if x["mean_latency_s"] and y["mean_latency_s"]
            ]
            if not parts:
                continue
            ratios.append(b["latency"]["mean"] / a["latency"]["mean"])
            rows.append(
                (
                    setting["name"],
                    arm,
                    f"{ratios[-1]:.3g} ({min(parts):.3g} to {max(parts):.3g})",
                    f"{b['latency']['p95'] / a['latency']['p95']:.3g}",
                    f"{b['ttft']['mean'] / a['ttft']['mean']:.3g}",
                    f"{a['goodput']:.2f} -> {b['goodput']:.2f}",
                    f"{a['failed']} -> {b['failed']}",
                )
            )
    if not rows:
        raise ConfigError("no arm answered the same traffic in both")
    columns = ("traffic", "arm", "mean latency, B / A", "p95", "TTFT", "goodput", "failed")
    return [
        table(columns, rows),
        f"Mean latency over all of them, B / A: {statistics.geometric_mean(ratios):.3g}; below 1 B "
        "is faster. In brackets: least to most over the segments.",
    ]


def _commit(document: Mapping[str, Any]) -> str:
    return str(document["environment"].get("commit") or "unknown")
