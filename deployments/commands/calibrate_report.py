"""What a calibration says: seconds, the table that follows, the paper's model fitted to them."""

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from engine.calibrate.kind import Kind
from policy.acceptance import Acceptance, AcceptanceTracker
from policy.cost import Calibration, CostModel
from policy.optimize import Choice, decide, evaluate, rungs
from policy.stats import PositionCounts

_MANY_ROUNDS = 1e9


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """Of one kind of engine, at its first context."""

    kind: Kind
    calibration: Calibration
    acceptance: Acceptance
    max_batch: int
    max_len: int

    def choices(self) -> list[tuple[Choice, Choice]]:
        """What is best at each measured batch size, and what length 0 gives there."""
        model, context = CostModel(self.calibration), self.context
        decision = self._decide(model)
        return [
            (
                decision.choices[size - 1],
                evaluate(model, self.acceptance, size, 0, context),
            )
            for size in self.calibration.batch_sizes
            if size <= self.max_batch
        ]

    @property
    def context(self) -> int:
        return self.calibration.contexts[0]
