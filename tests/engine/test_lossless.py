"""The master test: whatever speculation and batching do, the tokens are those of plain decoding."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from engine.config import DrafterConfig
from engine.request import Request
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.conftest import NEW_TOKENS, PROMPTS
from tests.engine.harness import greedy, run, texts, tiny_engine

DRAFTERS = ("ngram", "perturbed", "itself")


def drafter_config(name: str, target: Path, draft: Path) -> DrafterConfig:
    match name:
        case "ngram":
            return DrafterConfig(kind="ngram", max_ngram=3, min_ngram=1)
        case "perturbed":
            return DrafterConfig(kind="model", model=draft)
        case _:
            return DrafterConfig(kind="model", model=target)


def requests() -> list[Request]:
    return [greedy(name, prompt, NEW_TOKENS) for name, prompt in PROMPTS.items()]


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("draft_len", range(9))
def test_greedy_at_every_length(
    target: Path, draft: Path, expected: dict[str, list[int]], name: str, draft_len: int
) -> None:
    engine = tiny_engine(target, draft_len=draft_len, drafter=drafter_config(name, target, draft))
    outcomes = run(engine, requests())
    assert texts(outcomes) == expected
    drafted = sum(outcome.num_drafted for outcome in outcomes.values())
    assert (drafted > 0) == (draft_len > 0)


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("max_step_tokens", [1, 3, 7, 512])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_chunks_and_blocks(
    target: Path,
    draft: Path,
    expected: dict[str, list[int]],
    name: str,
    max_step_tokens: int,
    block_size: int,
) -> None:
    engine = tiny_engine(
        target,
        draft_len=3,
        drafter=drafter_config(name, target, draft),
        max_step_tokens=max_step_tokens,
        block_size=block_size,
    )
    assert texts(run(engine, requests())) == expected


@pytest.mark.parametrize("name", DRAFTERS)
def test_preemption(target: Path, draft: Path, expected: dict[str, list[int]], name: str) -> None:
    """A pool with room for the longest sequence and little more makes the others yield."""
    engine = tiny_engine(
        target,
        draft_len=4,
        drafter=drafter_config(name, target, draft),
        num_blocks=19,
        max_model_len=72,
    )
    lengths: list[int] = []
    outcomes = run(engine, requests(), lambda _: lengths.append(engine.status().num_waiting))
    assert texts(outcomes) == expected
    assert any(b > a for a, b in pairwise(lengths)), "nothing was preempted"


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("seed", range(4))
def test_table_swaps_in_mid_flight(
    target: Path, draft: Path, expected: dict[str, list[int]], name: str, seed: int
) -> None:
    engine = tiny_engine(target, drafter=drafter_config(name, target, draft))
    chance = random.Random(seed)

    def swap(step: int) -> None:
        engine.set_table(SpeculationTable(step, fixed_rungs(chance.choice([0, 0, 1, 3, 8]))))

    assert texts(run(engine, requests(), swap)) == expected


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("abort_after", [1, 2, 3, 5, 8, 13])
def test_aborted_neighbours(
    target: Path, draft: Path, expected: dict[str, list[int]], name: str, abort_after: int
) -> None:
    engine = tiny_engine(
        target, draft_len=4, drafter=drafter_config(name, target, draft), max_step_tokens=16
    )
    neighbours = [greedy(f"gone {i}", [20 + i] * (3 + 9 * i), 50) for i in range(3)]

    def abort(step: int) -> None:
        if step == abort_after:
            for request in neighbours:
                engine.abort(request.request_id)

    outcomes = texts(run(engine, [neighbours[0], *requests(), *neighbours[1:]], abort))
    assert {name: outcomes[name] for name in PROMPTS} == expected
