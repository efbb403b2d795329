"""Pictures of a grid: time per token with each batch size's best, and the paper's curves."""

import math
from pathlib import Path

from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from deployments.bench.paper_model import PaperModel

_FINE = 50
"""Points of a smooth curve."""


def plot_heat_map(model: PaperModel, path: Path) -> None:
    """Milliseconds that a sequence waits for a token; the colour tells the gain over length 0, and
    each row's best is framed. As PNG. Raises OSError when it can't be written."""
    sizes = model.batch_sizes
    lengths = sorted({length for size in sizes for length in model.lengths(size)})
    gains = [
        [model.gains(size, s).median if s in model.lengths(size) else math.nan for s in lengths]
        for size in sizes
    ]
    known = [gain for row in gains for gain in row if not math.isnan(gain)]
    away = max(0.05, *(abs(gain - 1) for gain in known))
    norm = TwoSlopeNorm(1.0, vmin=max(0.0, 1 - away), vmax=1 + away)
    figure = Figure(
        figsize=(2.5 + 0.85 * len(lengths), 1.8 + 0.5 * len(sizes)), layout="constrained"
    )
    axes = figure.subplots()
    image = axes.imshow(gains, cmap="RdYlGn", norm=norm, aspect="auto")
    for y, size in enumerate(sizes):
        for x, length in enumerate(lengths):
            if length in model.lengths(size):
                told = f"{1e3 * model.seconds_per_token(size, length).median:.3g}"
                axes.text(x, y, told, ha="center", va="center", fontsize=9)
        best = lengths.index(model.best(size).draft_len)
        axes.add_patch(Rectangle((best - 0.5, y - 0.5), 1, 1, fill=False, linewidth=2.5))
    axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_yticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel("draft tokens s")
    axes.set_ylabel("sequences b")
    axes.set_title("ms per token of a sequence; each row's best is framed", fontsize=10)
    figure.colorbar(image, ax=axes, label="tokens/s over those at s = 0")
    figure.savefig(path, dpi=120, format="png")


def plot_curves(model: PaperModel, path: Path) -> None:
    """t_L(b, s), t_S(b), l(s) and s*(b): dots are measured, lines are the paper's form fitted to
    them. As PNG. Raises OSError when it can't be written."""
    assert model.cost is not None
    figure = Figure(figsize=(11, 8), layout="constrained")
    (target, draft), (kept, best) = figure.subplots(2, 2)
    for index, size in enumerate(model.batch_sizes):
        color = f"C{index}"
        lengths = model.lengths(size)
        measured = [1e3 * model.target_seconds(size, s) for s in lengths]
        target.plot(lengths, measured, "o", color=color, label=f"b = {size}")
        ends = (lengths[0], lengths[-1])
        target.plot(
            ends,
            [1e3 * (model.cost.alpha[size] * s + model.cost.beta) for s in ends],
            "-",
            color=color,
        )
        own = model.cost.alpha_by_batch[size], model.cost.beta_by_batch[size]
        target.plot(ends, [1e3 * (own[0] * s + own[1]) for s in ends], ":", color=color)
        drafted = [s for s in lengths if s]
        each = [1e3 * model.draft_seconds(size, s) / s for s in drafted]
        draft.plot([size] * len(drafted), each, "o", color=color, alpha=0.5)
    target.set_xlabel("draft tokens s")
    target.set_ylabel("t_L, ms")
    target.set_title("target pass; lines: alpha_b s + beta, dotted: each its own beta", fontsize=10)
    target.legend(fontsize=8)
    sizes = model.batch_sizes
    draft.plot(sizes, [1e3 * model.cost.draft_seconds[size] for size in sizes], "k-", label="fit")
    draft.set_xlabel("sequences b")
    draft.set_ylabel("t_S, ms for each draft token")
    draft.set_title("drafting; a dot for each length", fontsize=10)
    draft.set_xscale("log", base=2)
    draft.set_ylim(bottom=0)
    kept.plot([*model.accepted], [*model.accepted.values()], "o", label="measured")
    if model.c > 0:
        longest = max(model.accepted)
        fine = [longest * i / _FINE for i in range(_FINE + 1)]
        law = f"{model.c:.2f} s^{model.gamma:.2f}"
        kept.plot(fine, [model.c * s**model.gamma for s in fine], "-", label=law)
    kept.set_xlabel("draft tokens s")
    kept.set_ylabel("l(s), kept in a round")
    kept.set_title("acceptance", fontsize=10)
    kept.set_ylim(bottom=0)
    kept.legend()
    best.plot(sizes, [model.best(size).draft_len for size in sizes], "o", label="measured")
    best.plot(sizes, [model.by_equation(size) for size in sizes], "-", label="equation")
    best.plot(sizes, [model.by_own_line(size) for size in sizes], ":", label="its own beta")
    best.set_xscale("log", base=2)
    best.set_xlabel("sequences b")
    best.set_ylabel("s*")
    best.set_title("best draft length", fontsize=10)
    best.set_ylim(bottom=-0.3)
    best.legend()
    for axes in (target, draft, kept, best):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, format="png")
