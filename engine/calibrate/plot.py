"""A picture of a calibration: time per token by batch size and draft length."""

from pathlib import Path

from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from policy.acceptance import Acceptance
from policy.cost import Calibration, CostModel
from policy.optimize import Choice, evaluate


def plot_calibration(calibration: Calibration, acceptance: Acceptance, path: Path) -> None:
    """As PNG, at the first context. Raises OSError when it can't be written.

    A field tells the milliseconds that a sequence waits for a token, its colour how many times more
    tokens per second that is than without drafts. Each row's best is framed; what was not measured
    itself is in brackets.
    """
    context = calibration.contexts[0]
    sizes = calibration.batch_sizes
    lengths = range(calibration.draft_lens[-1] + 1)
    measured = {(c.batch_size, c.draft_len) for c in calibration.cells if c.context == context}
    model = CostModel(calibration)
    rows = [
        [evaluate(model, acceptance, size, length, context) for length in lengths] for size in sizes
    ]
    gains = [[one.tokens_per_second / row[0].tokens_per_second for one in row] for row in rows]
    figure = Figure(figsize=(2 + 0.85 * len(lengths), 1.8 + 0.5 * len(sizes)), layout="constrained")
    axes = figure.subplots()
    away = max(0.05, *(abs(gain - 1) for row in gains for gain in row))
    image = axes.imshow(
        gains,
        cmap="RdYlGn",
        norm=TwoSlopeNorm(1.0, vmin=max(0.0, 1 - away), vmax=1 + away),
        aspect="auto",
    )
    for y, row in enumerate(rows):
        for x, choice in enumerate(row):
            milliseconds = 1e3 * _seconds_per_token(choice)
            told = f"{milliseconds:.3g}" if milliseconds < 1000 else f"{milliseconds:,.0f}"
            was_measured = (choice.batch_size, choice.draft_len) in measured
            axes.text(
                x, y, told if was_measured else f"({told})", ha="center", va="center", fontsize=8
            )
        best = min(row, key=lambda choice: (_seconds_per_token(choice), choice.draft_len))
        frame = Rectangle((best.draft_len - 0.5, y - 0.5), 1, 1, fill=False, linewidth=2.5)
        axes.add_patch(frame)
    axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_yticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel("draft tokens")
    axes.set_ylabel("sequences")
    axes.set_title(f"ms per token of a sequence, {context} tokens of context", fontsize=10)
    figure.colorbar(image, ax=axes, label="tokens/s over those without drafts")
    figure.savefig(path, dpi=120, format="png")


def _seconds_per_token(choice: Choice) -> float:
    return choice.round_seconds / choice.tokens_per_round
