"""Engines that are there at once, over `tiny_models`, and what they must answer."""

from collections.abc import Iterable
from collections.abc import Sequence as ReadOnly
from functools import cache
from typing import Any

from engine.core import Engine
from engine.plan import Draft, StepPlan, StepResult
from engine.request import Request, SamplingParams, TokenDelta
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.reference import Answer, Reference
from tests.engine.tiny_models import (
    CONTEXT,
    EOS,
    DrafterName,
    TargetName,
    assemble,
    compiler,
    plain_model,
)

PROMPTS: dict[str, tuple[int, ...]] = {
    "short": (5, 9, 2),
    "repeating": (7, 8, 9, 10, 11) * 3 + (7, 8),
    "long": tuple((13 * i + i * i) % 99 + 3 for i in range(40)),
}
NEW_TOKENS = 20


def quick_engine(
    drafter: DrafterName = "none",
    draft_len: int = 0,
    *,
    target: TargetName = "full",
    **sizes: int,
) -> Engine:
    table = SpeculationTable(0, fixed_rungs(draft_len))
    return assemble(target, drafter, table, **{"num_blocks": 256, "block_size": 4, **sizes})


def request(name: str, max_tokens: int = NEW_TOKENS, **params: Any) -> Request:
    """A greedy request with the prompt of that name, unless `params` say otherwise. What follows
    a blank in the name makes it another request."""
    sampling = SamplingParams(**{"temperature": 0.0, "max_tokens": max_tokens, **params})
    return Request(name, PROMPTS[name.split()[0]], sampling)


@cache
def answer(request: Request, *, target: TargetName = "full", max_len: int = CONTEXT) -> Answer:
    reference = Reference(plain_model(target), eos=EOS, max_len=max_len, grammars=compiler(target))
    found = reference.answer(request)
    assert found.is_clear, "a near-tie: take another prompt or seed"
    return found


def answers(requests: Iterable[Request]) -> dict[str, list[int]]:
    return {one.request_id: list(answer(one).tokens) for one in requests}


def steps(engine: Engine, *requests: Request) -> list[list[TokenDelta]]:
    """What each step told until all have ended."""
    engine.add(*requests)
    told = []
    while engine.has_work:
        told.append(engine.step())
        engine.check_integrity()
    return told


def deltas_of(told: list[list[TokenDelta]], request_id: str) -> list[TokenDelta]:
    return [delta for step in told for delta in step if delta.request_id == request_id]


class Witness:
    """Stands before an engine's executor and keeps what each step asked of it."""

    failure: str | None = None

    def __init__(self, engine: Engine) -> None:
        self._executor = engine._executor
        self.asked: list[tuple[StepPlan, list[Draft]]] = []
        engine._executor = self

    def execute(self, plan: StepPlan, drafts: ReadOnly[Draft]) -> StepResult:
        self.asked.append((plan, list(drafts)))
        return self._executor.execute(plan, drafts)

    def close(self) -> None:
        self._executor.close()
