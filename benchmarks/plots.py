"""Figures of what scaling.py measured, as PNG and SVG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def plot_steps(folder: Path, cells: Sequence[Mapping[str, Any]]) -> None:
    """Step time against batch, a line for each context, and the roofline below it, dashed."""
    figure, axes = _figure("sequences", "step, ms")
    for index, context in enumerate(sorted({cell["context"] for cell in cells})):
        row = [cell for cell in cells if cell["context"] == context]
        batches = [cell["batch_size"] for cell in row]
        color = f"C{index}"
        measured = [1e3 * cell["seconds"]["median"] for cell in row]
        axes.plot(batches, measured, "o-", color=color, label=f"context {context}")
        axes.plot(batches, [1e3 * c["roofline_seconds"] for c in row], "--", color=color)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title("decoding step; dashed: roofline")
    _save(figure, axes, folder / "step_time")


def plot_scheduling(folder: Path, cells: Sequence[Mapping[str, Any]], limit: float) -> None:
    """Scheduling time of a step against running sequences."""
    figure, axes = _figure("running sequences", "scheduling of a step, ms")
    for draft_len in sorted({cell["draft_len"] for cell in cells}):
        row = [cell for cell in cells if cell["draft_len"] == draft_len]
        measured = [1e3 * cell["seconds"]["median"] for cell in row]
        axes.plot([c["num_seqs"] for c in row], measured, "o-", label=f"drafts of {draft_len}")
    axes.axhline(1e3 * limit, color="gray", linestyle=":", label="goal at the right end")
    _save(figure, axes, folder / "scheduling_time")


def plot_memory(folder: Path, by_count: Mapping[int, int]) -> None:
    """Memory of the books against sequences."""
    figure, axes = _figure("sequences", "memory of the books, MB")
    megabytes = [taken / 1e6 for taken in by_count.values()]
    axes.plot([*by_count], megabytes, "o-", label="prompts of 1000 tokens")
    _save(figure, axes, folder / "memory")


def plot_day(folder: Path, parts: Sequence[Mapping[str, Any]]) -> None:
    """Scheduling rate and resident memory over the simulated day."""
    figure, axes = _figure("tenth of the day", "steps a second of scheduling time")
    tenths = range(1, len(parts) + 1)
    axes.plot(tenths, [p["steps_per_second"] for p in parts], "o-", label="steps a second")
    memory = axes.twinx()
    memory.plot(tenths, [p["resident_bytes"] / 1e6 for p in parts], "s:C1", label="resident, MB")
    memory.set_ylabel("resident memory, MB")
    memory.set_ylim(bottom=0)
    memory.legend(loc="lower right")
    _save(figure, axes, folder / "day")


def _figure(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return figure, axes


def _save(figure: Figure, axes: Axes, path: Path) -> None:
    axes.set_ylim(bottom=0 if axes.get_yscale() == "linear" else None)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left" if axes.get_yscale() == "log" else "lower left")
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
