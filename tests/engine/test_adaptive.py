"""The whole loop on the virtual clock: an engine reports, a board learns and decides."""

from dataclasses import replace

import pytest

from policy.table import Budget, SpeculationTable, fixed_rungs
from tests.engine.adaptive import MAX_DRAFT_LEN, PLAIN, Lab, Machine, fixed


class Level:
    """Acceptance at all positions alike, until it is set to another."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, request_id: str, position: int) -> float:
        return self.value


def best_length(machine: Machine, batch_size: int, acceptance: float) -> int:
    """Of 0 to `MAX_DRAFT_LEN`, by the formulas."""

    def rate(length: int) -> float:
        tokens = sum(acceptance**kept for kept in range(length + 1))
        seconds = machine.target(batch_size, batch_size * length, 0, 0.0)
        return tokens / (seconds + machine.drafting(batch_size, length))

    return max(range(MAX_DRAFT_LEN + 1), key=rate)


def rate_of(
    table: SpeculationTable, lab: Lab, clients: int, acceptance: Level, machine: Machine = PLAIN
) -> float:
    """Tokens per second with a table that stays, over the same stretch of time as `lab`'s last."""
    return 0.0


@pytest.mark.parametrize("batch_size", [1, 2, 4, 8, 16])
def test_never_worse_than_the_best_fixed_length_or_off(batch_size: int) -> None:
    for value in (0.05, 0.3, 0.6, 0.8, 0.95):
        best = best_length(PLAIN, batch_size, value)

        def measured(policy: object, value: float = value) -> float:
            lab = Lab(policy, clients=batch_size, acceptance=Level(value))
            lab.run(WARM_UP_S)
            return lab.run(20.0)
