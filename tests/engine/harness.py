"""Drives an engine to the end, with a hook between steps and the books checked after each."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.request import FinishReason, Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs


@dataclass
class Outcome:
    tokens: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    num_drafted: int = 0
    num_accepted: int = 0
    num_cached_tokens: int = 0


def tiny_engine(
    model: Path, *, draft_len: int = 0, drafter: DrafterConfig | None = None, **overrides: Any
) -> Engine:
    config = EngineConfig(
        model=model,
        **{
            "drafter": drafter or DrafterConfig(kind="none"),
            "dtype": "float32",
            "block_size": 4,
            "num_blocks": 256,
            **overrides,
        },
    )
    return build_engine(config, SpeculationTable(0, fixed_rungs(draft_len)))


def run(
    engine: Engine,
    requests: Iterable[Request],
    between_steps: Callable[[int], None] = lambda step: None,
) -> dict[str, Outcome]:
    """Add all requests, step until idle; `between_steps` is told how many steps were done."""
    outcomes: dict[str, Outcome] = {}
    for request in requests:
        engine.add(request)
        outcomes[request.request_id] = Outcome()
    steps = 0
    while engine.has_work:
        for delta in engine.step():
            outcome = outcomes[delta.request_id]
            assert outcome.reason is None, "a finished request went on"
            outcome.tokens += delta.token_ids
            outcome.reason = delta.finish_reason
            outcome.num_drafted += delta.num_drafted
            outcome.num_accepted += delta.num_accepted
            outcome.num_cached_tokens += delta.num_cached_tokens
        engine.check_integrity()
        steps += 1
        assert steps < 5000, "the engine makes no progress"
        between_steps(steps)
    status = engine.status()
    assert status.num_free_blocks == status.num_blocks, "blocks leaked"
    return outcomes


def greedy(name: str, prompt: list[int], max_tokens: int, **params: Any) -> Request:
    return Request(
        name, tuple(prompt), SamplingParams(max_tokens=max_tokens, temperature=0.0, **params)
    )


def texts(outcomes: dict[str, Outcome]) -> dict[str, list[int]]:
    return {name: outcome.tokens for name, outcome in outcomes.items()}
