"""Pictures of a simulation, as PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

_POINTS = 400


def plot_latencies(arms: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Mean, p50 and p95 of each arm, side by side."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    told = {name: arm["latency_s"] for name, arm in arms.items() if arm["latency_s"] is not None}
    width = 0.8 / 3
    for index, part in enumerate(("mean", "p50", "p95")):
        at = [place + (index - 1) * width for place in range(len(told))]
        axes.bar(at, [one[part] for one in told.values()], width, label=part)
    axes.set_xticks(range(len(told)), [*told])
    axes.set_ylabel("seconds from arrival to end")
    axes.legend()
    figure.savefig(path, dpi=120, format="png")


def plot_times(latencies: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> None:
    """Latency over time of each arm, (seconds of arrival, seconds): means of stretches."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    for name, points in latencies.items():
        size = max(1, len(points) // _POINTS)
        stretches = [points[at : at + size] for at in range(0, len(points), size)]
        axes.plot(
            [sum(at for at, _ in part) / len(part) for part in stretches],
            [sum(latency for _, latency in part) / len(part) for part in stretches],
            label=name,
            linewidth=1,
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel("mean latency, s")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path, dpi=120, format="png")
