"""Traffic against a calibration that is wrong in a known way."""

import json
import math
from typing import Any

import pytest

from policy.cost import CostModel
from policy.cost_tracker import CostTracker
from policy.stats import ShapeSums, StepShape
from tests.policy.grids import BATCH_SIZES, CONTEXT, grid, steps_of

BASE = CostModel(grid())


def shapes_of(
    batch_size: int, *lengths: int, steps: int = 40, **wrong: Any
) -> dict[StepShape, ShapeSums]:
    shapes = [StepShape(batch_size, s, batch_size * s) for s in lengths]
    return {shape: steps_of(BASE, shape, steps, **wrong) for shape in shapes}


def tracked(batch_size: int, *lengths: int, reports: int = 25, **wrong: Any) -> CostModel:
    tracker = CostTracker(grid())
    for _ in range(reports):
        tracker.observe(shapes_of(batch_size, *lengths, **wrong))
    return tracker.model()


def test_without_traffic_it_is_the_calibration() -> None:
    model = CostTracker(grid()).model()
    for size in (1, 3, 16):
        assert model.target_seconds(size, 2 * size, 9) == BASE.target_seconds(size, 2 * size, 9)


def test_a_calibration_that_is_right_stays() -> None:
    model = tracked(8, 0, 1, 2, 4)
    for size in BATCH_SIZES:
        fix = model.correction(size)
        assert (fix.scale, fix.slope, fix.draft_scale) == pytest.approx((1, 1, 1))


def test_a_slower_machine_is_seen_at_every_batch_size() -> None:
    """Where there was no traffic too: what slows one slows the other."""
    model = tracked(8, 0, 2, scale=1.5)
    assert model.correction(8).scale == pytest.approx(1.5, rel=0.02)
    assert model.correction(8).slope == pytest.approx(1.0, abs=0.02)
    assert model.correction(1).scale == pytest.approx(1.5, rel=0.04)
    assert model.target_seconds(8, 16, CONTEXT) == pytest.approx(
        1.5 * BASE.target_seconds(8, 16, CONTEXT), rel=0.02
    )


def test_draft_tokens_that_cost_twice_as_much_are_seen() -> None:
    model = tracked(8, 0, 1, 2, 3, per_token=2.0)
    without = BASE.target_seconds(8, 0, CONTEXT)
    for length in range(4):
        added = BASE.target_seconds(8, 8 * length, CONTEXT) - without
        assert model.target_seconds(8, 8 * length, CONTEXT) == pytest.approx(
            without + 2 * added, rel=0.06
        )
    assert model.correction(8).slope == pytest.approx(2.0, rel=0.1)
    elsewhere = model.correction(1)
    assert elsewhere.slope == 1.0, "says nothing of other batch sizes"
    assert elsewhere.scale == pytest.approx(1.0, abs=0.06)


def test_both_at_once() -> None:
    model = tracked(16, 0, 1, 2, scale=1.5, per_token=2.0)
    assert model.correction(16).scale == pytest.approx(1.5, rel=0.06)
    assert model.correction(16).slope == pytest.approx(2.0, rel=0.1)


def test_slower_drafting_is_seen_apart() -> None:
    fix = tracked(4, 1, 2, per_draft=2.0).correction(4)
    assert fix.draft_scale == pytest.approx(2.0, rel=0.05)
    assert fix.scale == pytest.approx(1.0)


def test_one_length_alone_says_nothing_of_the_slope() -> None:
    fix = tracked(16, 2, scale=1.2).correction(16)
    assert fix.slope == 1.0
    assert fix.scale == pytest.approx(1.2, rel=0.02)


def test_a_few_steps_weigh_little() -> None:
    tracker = CostTracker(grid())
    tracker.observe(shapes_of(8, 0, steps=5, scale=2.0))
    assert 1.0 < tracker.model().correction(8).scale < 1.25


def test_a_machine_that_changes_is_followed() -> None:
    tracker = CostTracker(grid())
    for scale in (2.0, 1.0):
        for _ in range(75):
            tracker.observe(shapes_of(8, 0, 2, scale=scale))
    assert tracker.model().correction(8).scale == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("factor", [1000.0, 0.0001])
def test_an_outlier_counts_as_a_factor_of_four(factor: float) -> None:
    def after_one(scale: float) -> float:
        tracker = CostTracker(grid())
        for _ in range(10):
            tracker.observe(shapes_of(8, 0))
        tracker.observe(shapes_of(8, 0, steps=1, scale=scale, per_draft=scale))
        return tracker.model().correction(8).scale

    assert after_one(factor) == pytest.approx(after_one(4.0 if factor > 1 else 0.25))
    assert after_one(factor) == pytest.approx(1.0, abs=0.01)


def test_slopes_are_bounded() -> None:
    assert tracked(16, 0, 1, per_token=50.0).correction(16).slope <= 4.0
    assert tracked(16, 0, 1, per_token=0.0).correction(16).slope >= 0.25


def test_windows_without_steps_are_nothing() -> None:
    tracker = CostTracker(grid())
    tracker.observe({StepShape(8, 1, 8): ShapeSums(), StepShape(8, 0, 0): ShapeSums(3)})
    assert tracker.model().correction(8).scale == 1.0


def test_a_batch_size_between_those_measured_counts_for_the_nearest() -> None:
    model = tracked(7, 0, scale=2.0)
    assert model.correction(8).scale > model.correction(4).scale


def test_it_survives_json() -> None:
    tracker = CostTracker(grid())
    tracker.observe(shapes_of(8, 0, 1, 2, scale=1.5, per_token=2.0, per_draft=1.2))
    again = CostTracker.from_json(json.loads(json.dumps(tracker.as_json())))
    assert again.as_json() == tracker.as_json()
    for size in BATCH_SIZES:
        assert again.model().correction(size) == tracker.model().correction(size)


NO_SUMS: list[object] = [[1], {"8": None}, {"8": {}}, {"8": {"n": 1.0}}]


def state(**changed: object) -> dict[str, Any]:
    tracker = CostTracker(grid())
    tracker.observe(shapes_of(8, 0, 1))
    return {**tracker.as_json(), **changed}


@pytest.mark.parametrize(
    "value",
    [
        *(None, 3, [], "x", {}, {"calibration": {}}, state(calibration=None), state(sums=None)),
        *(state(sums=sums) for sums in NO_SUMS),
        *(state(sums={size: state()["sums"]["8"]}) for size in ("0", "-1", "7", "x", "")),
        *(
            state(sums={"8": {**state()["sums"]["8"], "n": number}})
            for number in (math.nan, math.inf, -50.0, 10**400, None, "many")
        ),
    ],
)
def test_what_is_no_state_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError):
        CostTracker.from_json(value)
