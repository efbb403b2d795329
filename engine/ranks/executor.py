"""Runs a step's plan on all ranks: tells them what to compute, and computes its own part."""

import time
from collections.abc import Sequence as ReadOnly

from engine.executor import inputs_of
from engine.plan import Draft, StepPlan, StepResult
from engine.ranks.hub import Hub
from engine.ranks.launch import Ranks
from engine.ranks.spec import RankFailed
from engine.ranks.wire import encode
from engine.runner import ModelRunner
from engine.verify import verify


class RankedExecutor:
    """An `Executor` of rank 0. Every rank gets all that it acts on from here, and decides nothing;
    the logits come out whole on rank 0, which alone verifies."""

    def __init__(self, runner: ModelRunner, hub: Hub, ranks: Ranks) -> None:
        self._runner = runner
        self._hub = hub
        self._ranks = ranks

    def execute(self, plan: StepPlan, drafts: ReadOnly[Draft]) -> StepResult:
        """See `Executor`. Raises RankFailed, which names the rank, when one failed."""
        started = time.perf_counter()
        inputs = inputs_of(plan, drafts)
        try:
            self._hub.send_plan(encode(inputs, plan.table_version))
            logits = self._runner.forward(inputs)
        except RankFailed:
            raise
        except Exception as error:
            # When a rank goes, what fails here is the sum over all of them.
            cause = self._hub.cause()
            if cause is None:
                raise
            raise RankFailed(cause) from error
        finally:
            self._hub.done()
        computed = time.perf_counter()
        slices = verify(plan.slices, drafts, logits, self._runner.choose)
        return StepResult(
            slices,
            target_seconds=computed - started,
            verify_seconds=time.perf_counter() - computed,
        )

    @property
    def failure(self) -> str | None:
        """See `Executor`."""
        return self._hub.failure

    def close(self) -> None:
        """See `Executor`."""
        self._hub.close()
        self._ranks.end()
