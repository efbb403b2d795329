"""Runs a step's plan on the target, in this process or behind the same interface in many."""

import time
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from typing import Protocol

from torch import Tensor

from engine.plan import Draft, StepPlan, StepResult
from engine.runner import ModelRunner, RunnerInput
from engine.sampling import Choose
from engine.verify import verify


class Executor(Protocol):
    """Computes a plan's tokens and verifies its drafts."""

    def execute(self, plan: StepPlan, drafts: ReadOnly[Draft]) -> StepResult:
        """One target pass; `drafts` has one entry per slice, empty ones included."""

    @property
    def failure(self) -> str | None:
        """Why no step can succeed any more; None while nothing is known of that."""

    def close(self) -> None:
        """Let go of everything; no call may follow."""


def inputs_of(plan: StepPlan, drafts: ReadOnly[Draft]) -> list[RunnerInput]:
    """What the target computes: known tokens and drafts."""
    return [
        RunnerInput(
            token_ids=[*part.tokens[part.start : part.end], *draft.token_ids],
            start=part.start,
            block_ids=part.block_ids,
            num_logits=part.end - part.logits_from + len(draft.token_ids),
        )
        for part, draft in zip(plan.slices, drafts, strict=True)
    ]


def timed(
    plan: StepPlan,
    drafts: ReadOnly[Draft],
    forward: Callable[[list[RunnerInput]], Tensor],
    choose: Choose,
) -> StepResult:
    """One target pass by `forward`, inputs to logits, and what it says of the drafts."""
    started = time.perf_counter()
    logits = forward(inputs_of(plan, drafts))
    computed = time.perf_counter()
    slices = verify(plan.slices, drafts, logits, choose)
    return StepResult(
        slices, target_seconds=computed - started, verify_seconds=time.perf_counter() - computed
    )


class LocalExecutor:
    """The target in this process."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner

    def execute(self, plan: StepPlan, drafts: ReadOnly[Draft]) -> StepResult:
        return timed(plan, drafts, self._runner.forward, self._runner.choose)

    failure = None

    def close(self) -> None:
        pass
