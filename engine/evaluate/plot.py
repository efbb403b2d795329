"""A picture of an evaluation: acceptance by position beside speed-up by batch size."""

from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from engine.evaluate.draft import Evaluation


def plot_evaluation(evaluation: Evaluation, path: Path) -> None:
    """As PNG. Raises OSError when it can't be written."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    shares = evaluation.acceptance.by_position
    values = [100 * share.value for share in shares]
    around = [
        [value - 100 * share.interval[0] for value, share in zip(values, shares, strict=True)],
        [100 * share.interval[1] - value for value, share in zip(values, shares, strict=True)],
    ]
    left.errorbar(range(1, len(values) + 1), values, yerr=around, fmt="o-", capsize=3)
    left.set_xlabel("position in the draft")
    left.set_ylabel("kept with all before it, % (95 % interval)")
    left.set_ylim(bottom=0)
    done = [batch for batch in evaluation.batches if batch.measured]
    sizes = [batch.batch_size for batch in done]
    middle = [median(batch.measured) for batch in done]
    spread = [
        [m - min(batch.measured) for m, batch in zip(middle, done, strict=True)],
        [max(batch.measured) - m for m, batch in zip(middle, done, strict=True)],
    ]
    right.plot(sizes, [batch.projected for batch in done], "s--C1", label="projected")
    right.errorbar(sizes, middle, yerr=spread, fmt="o-C0", capsize=3, label="measured")
    for batch, value in zip(done, middle, strict=True):
        right.annotate(f"length {batch.best}", (batch.batch_size, value), fontsize=8)
    right.axhline(1.0, color="gray", linestyle=":")
    right.set_xscale("log", base=2)
    right.set_xlabel("sequences")
    right.set_ylabel("tokens/s over those without drafts")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, format="png")
