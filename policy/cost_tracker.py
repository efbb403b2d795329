"""Calibrated cost set right by the steps of real traffic."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from policy.cost import Calibration, Correction, CostModel
from policy.quoting import shown
from policy.stats import ShapeSums, StepShape

_HALF_LIFE_STEPS = 500.0
_PRIOR_STEPS = 50.0
"""What calibration weighs against steps seen."""
_PRIOR_SQUARES = 0.2
"""The same for the slope, in squares of the seconds of a step without drafts: where steps differ by
a fifth for no reason, and the calibrated slope is right to within a half."""
_CLIP = 4.0
"""A step that took more than so many times what was expected, or less than its inverse, counts as
if it had taken just that: something else was going on."""
_SLOPES = (0.25, 4.0)


@dataclass(slots=True)
class _Sums:
    """Of the regression y = scale + (scale * slope) * x at one batch size, where y is a step's
    seconds and x what its draft tokens should add, both over the seconds expected without drafts;
    decayed."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    drafts: float = 0.0
    draft_ratio: float = 0.0

    def decay(self, factor: float) -> None:
        for name in self.__slots__:
            setattr(self, name, factor * getattr(self, name))


class CostTracker:
    """The cost model of one kind of replica, from its calibration and its traffic."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._base = CostModel(calibration)
        self._sums: dict[int, _Sums] = {}

    def observe(self, shapes: Mapping[StepShape, ShapeSums]) -> None:
        """Take in steps in which all sequences decoded."""
        for shape, sums in shapes.items():
            if sums.steps and sums.target_seconds > 0:
                self._observe(shape, sums)

    def _observe(self, shape: StepShape, sums: ShapeSums) -> None:
        steps, size = sums.steps, shape.batch_size
        context = sums.context_tokens / steps
        cost = self._base.at(size, context)
        plain, whole = cost.target(0.0), cost.target(shape.num_drafted / size)
        x = whole / plain - 1.0
        ratio = sums.target_seconds / steps / whole
        y = min(_CLIP, max(1 / _CLIP, ratio)) * (1.0 + x)
        into = self._sums.setdefault(self._bucket(size), _Sums())
        into.decay(0.5 ** (steps / _HALF_LIFE_STEPS))
        into.n += steps
        into.x += steps * x
        into.y += steps * y
        into.xx += steps * x * x
        into.xy += steps * x * y
        expected = cost.draft(shape.draft_len)
        if shape.draft_len and expected > 0:
            into.drafts += steps
            ratio = sums.draft_seconds / steps / expected
            into.draft_ratio += steps * min(_CLIP, max(0.0, ratio))

    def model(self) -> CostModel:
        """With corrections where there was traffic; elsewhere with the scale of all of it."""
        if not self._sums:
            return self._base
        n = sum(sums.n for sums in self._sums.values())
        fits = [(sums.n, _fit(sums)[0]) for sums in self._sums.values() if sums.n > 0]
        pooled = _mix_to(sum(weight * scale for weight, scale in fits) / max(n, 1e-9), 1.0, n)
        return self._base.with_corrections(
            {size: _correction(self._sums.get(size), pooled) for size in self._sizes}
        )

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.calibration.batch_sizes

    def _bucket(self, batch_size: int) -> int:
        return min(self._sizes, key=lambda size: abs(math.log(size / batch_size)))

    def as_json(self) -> dict[str, Any]:
        return {
            "calibration": self.calibration.as_json(),
            "sums": {str(size): asdict(sums) for size, sums in self._sums.items()},
        }

    @classmethod
    def from_json(cls, value: object) -> "CostTracker":
        """Raises ValueError for anything that `as_json` never made."""
        try:
            tracker = cls(Calibration.from_json(value["calibration"]))  # type: ignore[index]
            for size, sums in value["sums"].items():  # type: ignore[index]
                if int(size) not in tracker._sizes:
                    raise ValueError(f"sums of batch size {shown(size)}, which was not calibrated")
                found = _Sums(*[float(sums[name]) for name in _Sums.__slots__])
                if not all(math.isfinite(getattr(found, name)) for name in found.__slots__):
                    raise ValueError(f"sums of batch size {size} are not finite")
                if min(found.n, found.y, found.xx, found.drafts, found.draft_ratio) < 0:
                    raise ValueError(f"sums of batch size {size} are negative")
                tracker._sums[int(size)] = found
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a state of cost: {error}") from None
        return tracker


def _mix_to(value: float, prior: float, n: float) -> float:
    return (n * value + _PRIOR_STEPS * prior) / (n + _PRIOR_STEPS)


def _correction(sums: _Sums | None, pooled: float) -> Correction:
    if sums is None or sums.n <= 0:
        return Correction(scale=pooled)
    scale, slope = _fit(sums)
    draft = (sums.draft_ratio + _PRIOR_STEPS) / (sums.drafts + _PRIOR_STEPS)
    return Correction(_mix_to(scale, pooled, sums.n), slope, draft)


def _fit(sums: _Sums) -> tuple[float, float]:
    """Scale and slope: the slope shrunk to the calibrated one, the scale as it is with that."""
    slope = 1.0
    # How much draft tokens add is seen only where their number varied.
    mean_x, mean_y = sums.x / sums.n, sums.y / sums.n
    spread = sums.xx / sums.n - mean_x**2
    if spread > 1e-6:
        gradient = (sums.xy / sums.n - mean_x * mean_y) / spread
        plain = mean_y - gradient * mean_x
        steep = gradient / plain if plain > 0 else _SLOPES[1]
        # A gradient is as certain as the sum of the squares that it was found with.
        seen, steep = sums.n * spread, min(_SLOPES[1], max(_SLOPES[0], steep))
        slope = (seen * steep + _PRIOR_SQUARES) / (seen + _PRIOR_SQUARES)
    return sums.y / max(1e-9, sums.n + slope * sums.x), slope
