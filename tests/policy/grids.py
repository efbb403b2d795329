"""Calibrations made from a formula, and windows of traffic whose cost and drafts are known."""

import random
from collections.abc import Callable, Sequence

from policy.cost import Calibration, CostCell, CostModel
from policy.stats import DraftCounts, Fate, ShapeSums, StatsWindow, StepShape, batch_bucket

BATCH_SIZES = (1, 2, 4, 8, 16)
DRAFT_LENS = (0, 1, 2, 3, 4)
CONTEXT = 256
IDLE_TOKENS = 12
"""Tokens that a pass of `convex` computes in the time of none."""

Seconds = Callable[[int, int], float]
"""By batch size and draft length."""


def convex(batch_size: int, draft_len: int) -> float:
    """Of a target that is flat until its arithmetic is used up, and then linear."""
    return 0.010 + 0.001 * max(0, batch_size * (draft_len + 1) - IDLE_TOKENS)


def drafting(batch_size: int, draft_len: int) -> float:
    return draft_len * (0.001 + 0.00002 * batch_size)


def grid(
    target: Seconds = convex,
    draft: Seconds = drafting,
    *,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    draft_lens: Sequence[int] = DRAFT_LENS,
    contexts: Sequence[int] = (CONTEXT,),
) -> Calibration:
    return Calibration(
        tuple(
            CostCell(b, s, context, target(b, s), draft(b, s) if s else 0.0)
            for b in batch_sizes
            for s in draft_lens
            for context in contexts
        )
    )


def drafts(acceptance: float, rounds: int, draft_len: int = 4, seed: int = 0) -> DraftCounts:
    """Of drafts each of whose tokens is kept with a probability of `acceptance`."""
    counts, chance = DraftCounts(), random.Random(seed)
    for _ in range(rounds):
        kept = 0
        while kept < draft_len and chance.random() < acceptance:
            kept += 1
        counts.record(Fate(draft_len, kept))
    return counts


def steps_of(
    model: CostModel,
    shape: StepShape,
    steps: int,
    *,
    scale: float = 1.0,
    per_token: float = 1.0,
    per_draft: float = 1.0,
) -> ShapeSums:
    """Steps of a machine that takes `scale` times what `model` says, `per_token` times that for
    what draft tokens add, and `per_draft` times what `model` says for drafting."""
    plain = model.target_seconds(shape.batch_size, 0, CONTEXT)
    whole = model.target_seconds(shape.batch_size, shape.num_drafted, CONTEXT)
    draft = model.draft_seconds(shape.batch_size, shape.draft_len, CONTEXT)
    return ShapeSums(
        steps,
        CONTEXT * float(steps),
        steps * scale * (plain + per_token * (whole - plain)),
        steps * per_draft * draft,
    )


def window(
    acceptance: float, *, batch_size: int = 4, draft_len: int = 4, steps: int = 100, seed: int = 0
) -> StatsWindow:
    """A report of steps that cost what `grid` has, with drafts kept as often as `acceptance`."""
    shape = StepShape(batch_size, draft_len, batch_size * draft_len)
    return StatsWindow(
        steps=steps,
        shapes={shape: steps_of(CostModel(grid()), shape, steps)},
        positions={
            batch_bucket(batch_size): drafts(acceptance, steps * batch_size, draft_len, seed)
        },
    )
