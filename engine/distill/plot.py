"""A picture of a training: loss and held-out acceptance by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Point:
    """What was seen at a step."""

    step: int
    loss: float
    """Mean since the point before."""
    right: int
    tried: int


def plot_training(points: Sequence[Point], path: Path) -> None:
    """As PNG. Raises OSError when it can't be written."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    steps = [point.step for point in points]
    axes.plot(steps[1:], [point.loss for point in points[1:]], "o-", ms=3, label="training loss")
    axes.set_xlabel("step of the optimiser")
    axes.set_ylabel("cross-entropy with the target, nats")
    right = axes.twinx()
    shares = [100 * point.right / max(1, point.tried) for point in points]
    right.plot(steps, shares, "s-C1", ms=3, label="held-out acceptance")
    right.set_ylabel("held-out greedy acceptance at position 1, %")
    right.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    lines = [*axes.get_lines(), *right.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], loc="center right")
    figure.savefig(path, dpi=120, format="png")
