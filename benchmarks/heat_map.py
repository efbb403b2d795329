"""A picture of what never_worse.py measured."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from benchmarks.cells import Cell


def plot_cells(path: Path, cells: Sequence[Cell]) -> None:
    """Adaptive over length 0, and over each cell's best fixed length, by workload and concurrency,
    as PNG. Raises OSError when it can't be written."""
    works = list(dict.fromkeys(cell.workload for cell in cells))
    sizes = sorted({cell.concurrency for cell in cells})
    figure = Figure(figsize=(2.5 + 1.5 * len(sizes), 1.6 + 0.5 * len(works)), layout="constrained")
    left, right = figure.subplots(1, 2)

    def draw(axes: Axes, title: str, ratio: Callable[[Cell], float]) -> AxesImage:
        rows = [[float("nan")] * len(sizes) for _ in works]
        for cell in cells:
            y, x = works.index(cell.workload), sizes.index(cell.concurrency)
            rows[y][x] = ratio(cell)
            axes.text(x, y, f"{rows[y][x]:.2f}", ha="center", va="center", fontsize=9)
        away = max(0.05, *(abs(ratio(cell) - 1) for cell in cells))
        norm = TwoSlopeNorm(1.0, vmin=1 - away, vmax=1 + away)
        image = axes.imshow(rows, cmap="RdYlGn", norm=norm, aspect="auto")
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_yticks(range(len(works)), works)
        axes.set_xlabel("requests at once")
        axes.set_title(title, fontsize=10)
        return image

    draw(left, "adaptive / length 0", lambda cell: cell.over(0).median)
    draw(right, "adaptive / best fixed length", lambda cell: cell.over(cell.best_fixed).median)
    figure.savefig(path, dpi=120, format="png")
