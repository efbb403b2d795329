"""The document and the Markdown of a characterisation."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deployments.bench.characterize import Point
from deployments.bench.characterize_plots import plot_curves, plot_heat_map
from deployments.bench.markdown import table, where
from deployments.bench.paper_model import PaperModel
from deployments.bench.results import write_results

CHARACTERIZE = "characterize"
HEAT_MAP, CURVES = "characterize-heat-map.png", "characterize-curves.png"


def write_report(folder: Path, plan: dict[str, Any], points: Sequence[Point], done: bool) -> bool:
    """JSON, Markdown and pictures of what was measured; False where that is too little for any.
    Raises OSError."""
    model = PaperModel(points)
    if not model.batch_sizes:
        return False
    document = as_document(plan, points, model, is_complete=done)
    write_results(folder / f"{CHARACTERIZE}.json", document)
    plot_heat_map(model, folder / HEAT_MAP)
    plot_curves(model, folder / CURVES)
    (folder / f"{CHARACTERIZE}.md").write_text(as_markdown(document, model))
    return True


def as_document(
    plan: dict[str, Any], points: Sequence[Point], model: PaperModel, *, is_complete: bool
) -> dict[str, Any]:
    """Everything in JSON's types; `plan` holds the environment."""
    assert model.cost is not None
    return {
        "benchmark": CHARACTERIZE,
        "environment": plan["environment"],
        "plan": {key: value for key, value in plan.items() if key != "environment"},
        "is_complete": is_complete,
        "batch_sizes": [
            {
                "batch_size": size,
                "seconds_per_token": {
                    str(s): asdict(model.seconds_per_token(size, s)) for s in model.lengths(size)
                },
                "target_seconds": {
                    str(s): model.target_seconds(size, s) for s in model.lengths(size)
                },
                "best": asdict(model.best(size)),
                "best_by_equation": model.by_equation(size),
                "best_by_own_line": model.by_own_line(size),
            }
            for size in model.batch_sizes
        ],
        "accepted_by_length": {str(s): kept for s, kept in model.accepted.items()},
        "fit": {"c": model.c, "gamma": model.gamma, **asdict(model.cost)},
        "points": [asdict(point) for point in points],
    }


def as_markdown(document: dict[str, Any], model: PaperModel) -> str:
    """What a person reads; the pictures lie beside it."""
    assert model.cost is not None
    plan, cost = document["plan"], model.cost
    rows = []
    for size in model.batch_sizes:
        best = model.best(size)
        rows.append(
            (
                size,
                f"{1e3 * model.seconds_per_token(size, 0).median:.1f}",
                best.draft_len,
                f"{1e3 * best.seconds_per_token:.1f}",
                str(best.gain_spread),
                f"{model.by_equation(size):.1f}",
                f"{model.by_own_line(size):.1f}",
            )
        )
    columns = (
        "b",
        "ms per token, s = 0",
        "best s",
        "ms per token there",
        "gain",
        "s* by the equation",
        "with its own beta",
    )
    return "\n\n".join(
        (
            "# Characterisation",
            where(document),
            f"{plan['new_tokens']} new tokens, {plan['repeats']} repeats on other prompts each, "
            "greedy, timed where all of a batch decode. Gain: tokens/s over those at s = 0, median "
            "(least to most over the repeats); of lengths that are alike within that spread the "
            "fastest is named by chance.",
            table(columns, rows),
            f"![time per token]({HEAT_MAP})",
            f"l(s) = {model.c:.2f} s^{model.gamma:.2f}; t_L(b, s) = alpha_b s + "
            f"{1e3 * cost.beta:.1f} ms is off by {cost.error:.0%} (root of the mean square), with "
            f"a beta for each batch size by {cost.error_by_batch:.0%}. s* is where dT/ds = 0, 0 "
            "where drafting does not pay.",
            f"![measured curves and the fit]({CURVES})",
            "",
        )
    )


def best_lengths(document: dict[str, Any]) -> dict[int, int]:
    """Batch size -> measured best length: the paper's static table. Raises KeyError or TypeError
    for what is no characterisation."""
    return {
        int(row["batch_size"]): int(row["best"]["draft_len"]) for row in document["batch_sizes"]
    }
