"""Cost between and beyond the points measured, and calibrations that are not to be believed."""

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cost import Calibration, Correction, CostCell, CostModel
from policy.lines import rising
from tests.policy.grids import BATCH_SIZES, CONTEXT, DRAFT_LENS, convex, drafting, grid

SECONDS = st.floats(0.001, 1.0)
CELL: dict[str, Any] = {
    "batch_size": 2,
    "draft_len": 1,
    "context": 128,
    "target_seconds": 0.02,
    "draft_seconds": 0.01,
}


def test_measured_points_are_told_as_they_were_measured() -> None:
    model = CostModel(grid())
    for size in BATCH_SIZES:
        for length in DRAFT_LENS:
            assert model.target_seconds(size, size * length, CONTEXT) == pytest.approx(
                convex(size, length)
            )
            assert model.draft_seconds(size, length, CONTEXT) == pytest.approx(
                drafting(size, length)
            )


@given(st.lists(SECONDS, min_size=9, max_size=9), st.floats(0, 1), st.integers(4, 8))
def test_in_between_it_is_linear(noise: list[float], share: float, size: int) -> None:
    """Over lengths, over batch sizes and over contexts."""
    noisy = iter(rising(noise) * 2)
    model = CostModel(
        grid(
            lambda b, s: b + s + next(noisy),
            batch_sizes=(4, 8),
            draft_lens=(0, 2, 4),
            contexts=(100, 200, 300),
        )
    )

    def at(batch_size: int, length: float, context: float) -> float:
        return model.target_seconds(batch_size, batch_size * length, context)

    for ends, middle in (
        ((at(size, 2, 200), at(size, 4, 200)), at(size, 2 + 2 * share, 200)),
        ((at(size, 2, 200), at(size, 2, 300)), at(size, 2, 200 + 100 * share)),
    ):
        assert middle == pytest.approx((1 - share) * ends[0] + share * ends[1])
    part = (size - 4) / 4
    assert at(size, 2, 100) == pytest.approx((1 - part) * at(4, 2, 100) + part * at(8, 2, 100))


def test_a_batch_that_drafts_in_part_costs_a_part() -> None:
    """Three draft tokens for four sequences: between lengths 0 and 1."""
    model = CostModel(grid())
    low, high = model.target_seconds(16, 0, CONTEXT), model.target_seconds(16, 16, CONTEXT)
    assert model.target_seconds(16, 12, CONTEXT) == pytest.approx(low + 0.75 * (high - low))


@given(st.lists(st.floats(-0.003, 0.003), min_size=25, max_size=25))
def test_noise_never_makes_more_work_take_less_time(noise: list[float]) -> None:
    errors = iter(noise)
    model = CostModel(grid(lambda b, s: convex(b, s) + next(errors)))
    for size in range(1, BATCH_SIZES[-1]):
        row = [model.target_seconds(size, size * s / 2, CONTEXT) for s in range(9)]
        above = [
            model.target_seconds(size + 1, (size + 1) * s / 2, CONTEXT) for s in range(len(row))
        ]
        assert all(a <= b + 1e-12 for a, b in pairwise(row))
        assert all(a <= b + 1e-12 for a, b in zip(row, above, strict=True))


@given(st.lists(SECONDS, max_size=12))
def test_what_rises_is_the_mean_of_what_was_out_of_order(values: list[float]) -> None:
    smooth = rising(values)
    assert smooth == sorted(smooth)
    assert sum(smooth) == pytest.approx(sum(values))
    assert rising(sorted(values)) == sorted(values)


def test_beyond_the_grid_it_goes_on_and_contexts_stay() -> None:
    def line(batch_size: int, draft_len: int) -> float:
        return 0.01 + 0.001 * batch_size + 0.002 * draft_len

    model = CostModel(grid(line, contexts=(100, 200)))
    assert model.target_seconds(32, 0, 150) == pytest.approx(line(32, 0))
    assert model.target_seconds(1, 8, 150) == pytest.approx(line(1, 8))
    assert model.draft_seconds(32, 8, 150) == pytest.approx(drafting(32, 8))
    for beyond, end in ((1, 100), (10_000, 200)):
        assert model.target_seconds(2, 2, beyond) == model.target_seconds(2, 2, end)


def test_below_the_smallest_batch_size_nothing_becomes_free() -> None:
    """A line through 4 and 8 would be below 0 at 1."""
    model = CostModel(grid(lambda b, s: 0.001 * b**3 + 0.001 * s, batch_sizes=(4, 8)))
    assert model.target_seconds(1, 0, CONTEXT) == pytest.approx(0.064)
    assert model.draft_seconds(1, 2, CONTEXT) == pytest.approx(drafting(4, 2))


def test_a_grid_of_one_batch_size_is_enough() -> None:
    model = CostModel(grid(batch_sizes=(4,), draft_lens=(0, 2)))
    assert model.target_seconds(9, 9, CONTEXT) == pytest.approx((convex(4, 0) + convex(4, 2)) / 2)


def test_corrections_are_applied_and_mixed_by_the_logarithm_of_the_batch_size() -> None:
    fix = Correction(scale=2.0, slope=3.0, draft_scale=4.0)
    model, plain = CostModel(grid(), {4: fix, 16: Correction()}), CostModel(grid())
    without = plain.target_seconds(4, 0, CONTEXT)
    added = plain.target_seconds(4, 16, CONTEXT) - without
    assert added > 0
    assert model.target_seconds(4, 16, CONTEXT) == pytest.approx(2.0 * (without + 3.0 * added))
    assert model.draft_seconds(4, 2, CONTEXT) == pytest.approx(4 * drafting(4, 2))
    assert model.correction(8) == Correction(1.5, 2.0, 2.5)
    assert (model.correction(1), model.correction(99)) == (fix, Correction())


def test_nothing_drafted_takes_no_time() -> None:
    assert CostModel(grid()).draft_seconds(4, 0, CONTEXT) == 0.0


def test_a_calibration_survives_json() -> None:
    calibration = grid(contexts=(1, 64))
    assert Calibration.from_json(json.loads(json.dumps(calibration.as_json()))) == calibration
    assert calibration.batch_sizes == BATCH_SIZES
    assert calibration.draft_lens == DRAFT_LENS
    assert calibration.contexts == (1, 64)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("batch_size", value) for value in (0, -1, 1.5, True, None, "2", 10**400)),
        *(("draft_len", value) for value in (-1, 0.5, False, 10**400)),
        *(("context", value) for value in (-1, None, 10**400)),
        *(("target_seconds", value) for value in (0, -1.0, math.nan, math.inf, "1", None, True)),
        *(("draft_seconds", value) for value in (-0.1, math.nan, math.inf, 10**400)),
        ("draft_seconds", []),
        ("target_seconds", 10**400),
    ],
)
def test_a_bad_cell_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*, got ") as refused:
        CostCell(**{**CELL, name: value})
    assert len(str(refused.value)) < 200


def test_a_grid_with_holes_is_refused() -> None:
    with pytest.raises(ValueError, match="no draft_len above 0"):
        grid(draft_lens=(0,))
    with pytest.raises(ValueError, match="no draft_len 0 at batch_size 1, context 256"):
        grid(draft_lens=(1, 2))
    one_row = CostCell(32, 0, CONTEXT, 0.1, 0.0)
    with pytest.raises(ValueError, match="no draft_len above 0 at batch_size 32, context 256"):
        Calibration((*grid().cells, one_row))
    with pytest.raises(ValueError, match=r"\(1, 0, 256\) twice"):
        Calibration((*grid().cells, grid().cells[0]))


@pytest.mark.parametrize(
    "value",
    [
        *(None, 3, "cells", [], {}, {"cells": None}, {"cells": 3}, {"cells": "ab"}, {"cells": {}}),
        {"cells": [CELL]},
        {"cells": [{**CELL, "more": 1}]},
        {"cells": [{"batch_size": 1}]},
        {"cells": [[1, 0, 1, 0.1, 0.0]]},
    ],
)
def test_what_is_no_calibration_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError):
        Calibration.from_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.sampled_from(sorted(CELL)), JSON)
def test_any_value_in_a_cell_is_taken_or_a_value_error(name: str, value: object) -> None:
    cells = [{**CELL, "draft_len": 0}, {**CELL, name: value}]
    try:
        found = Calibration.from_json({"cells": cells})
    except ValueError:
        return
    assert CostModel(found).target_seconds(3, 2, 10) > 0
