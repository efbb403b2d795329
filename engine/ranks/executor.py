"""Runs a step's plan on all ranks: tells them what to compute, and computes its own part."""

from collections.abc import Sequence as ReadOnly

from torch import Tensor

from engine.executor import timed
from engine.plan import Draft, StepPlan, StepResult
from engine.ranks.lead import Led
from engine.ranks.spec import RankFailed
from engine.ranks.wire import encode
from engine.runner import ModelRunner, RunnerInput


class RankedExecutor:
    """An `Executor` of rank 0. Every rank gets all that it acts on from here, and decides nothing;
    the logits come out whole on rank 0, which alone verifies."""

    def __init__(self, runner: ModelRunner, led: Led) -> None:
        self._runner = runner
        self._led = led

    def execute(self, plan: StepPlan, drafts: ReadOnly[Draft]) -> StepResult:
        """See `Executor`. Raises RankFailed, which names the rank, when one failed."""

        def forward(inputs: list[RunnerInput]) -> Tensor:
            return self._forward(inputs, plan.table_version)

        return timed(plan, drafts, forward, self._runner.choose)

    def _forward(self, inputs: list[RunnerInput], table_version: int) -> Tensor:
        hub = self._led.hub
        try:
            hub.send_plan(encode(inputs, table_version))
            return self._runner.forward(inputs)
        except RankFailed:
            raise
        except Exception as error:
            # When a rank goes, what fails here is the sum over all of them.
            cause = hub.cause()
            if cause is None:
                raise
            raise RankFailed(cause) from error
        finally:
            hub.done()

    @property
    def failure(self) -> str | None:
        """See `Executor`."""
        return self._led.hub.failure

    def close(self) -> None:
        """See `Executor`."""
        self._led.end()
