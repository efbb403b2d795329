"""The service benchmark's load and its faults, against the API over a scripted engine."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from benchmarks.service.answers import Outcome
from benchmarks.service.asks import Asks
from benchmarks.service.faults import (
    CLIENTS_THAT_LEAVE,
    NEW_TOKENS,
    Fault,
    FaultRuns,
    Happening,
    expected_texts,
)
from benchmarks.service.held import Held, capacity, hold
from benchmarks.service.served import KINDS, PROXY, REPLICA
from tests.deployments.api_app import App
from tests.deployments.fake_loop import STATUS
from tests.tiny_tokenizer import byte_level_tokenizer

SECONDS = 0.5
TOKENS = [(40 + n % 20,) for n in range(200)]
IDLE = replace(STATUS, num_running=0, num_waiting=0, num_free_blocks=STATUS.num_blocks)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


class FakeServed:
    """A process that is killed is another one from then on. It is this one, for what is read."""

    def __init__(self, app: App, url: str) -> None:
        self._app = app
        self.url = url
        self.killed: list[int] = []
        self.on_kill: Any = lambda: None

    def pids(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {kind: set() for kind in KINDS}
        found[REPLICA] = {os.getpid() if not self.killed else os.getppid()}
        found[PROXY] = {os.getpid()}
        return found

    def kill(self, pid: int) -> None:
        self.killed.append(pid)
        self.on_kill()


@asynccontextmanager
async def served(tokenizer: PreTrainedTokenizerFast) -> AsyncIterator[tuple[App, FakeServed]]:
    app = App(tokenizer, TOKENS, max_model_len=4096)
    async with app.served() as url:
        yield app, FakeServed(app, url)


def asks() -> Asks:
    return Asks("tiny", ["a text", "another"])


async def test_a_server_that_is_well_holds_the_load(tokenizer: PreTrainedTokenizerFast) -> None:
    async with served(tokenizer) as (_, one):
        found = Held(capacity_rps=40.0)
        assert await capacity(one, asks(), 4, SECONDS) > 0  # type: ignore[arg-type]
        await hold(one, asks(), SECONDS, found)  # type: ignore[arg-type]
    assert found.has_ended
    assert found.num_requests > 0
    assert (found.num_errors, found.health_failures, found.errors) == (0, 0, [])


async def test_a_server_that_fails_is_found_out(tokenizer: PreTrainedTokenizerFast) -> None:
    async with served(tokenizer) as (app, one):
        app.loop.scripts = [[RuntimeError("broken")]]
        found = Held(capacity_rps=40.0)
        await hold(one, asks(), SECONDS, found)  # type: ignore[arg-type]
    assert found.num_errors > 0
    assert "500" in found.errors[0]


async def happen(tokenizer: PreTrainedTokenizerFast, fault: Fault, after: Any) -> FaultRuns:
    """`after`: the script of the engine once somebody was killed; None: the same."""
    runs = FaultRuns()
    async with served(tokenizer) as (app, one):
        # Who asks for more than clients that stay waits until it leaves.
        app.loop.scripts = [[*TOKENS[:NEW_TOKENS], asyncio.Event()]]
        app.loop.status = IDLE
        texts = await expected_texts(one, asks())  # type: ignore[arg-type]
        assert all(texts)

        def break_down() -> None:
            if after is not None:
                app.loop.scripts = [after]

        one.on_kill = break_down
        happening = Happening(one, asks(), texts, 0, random.Random(0))  # type: ignore[arg-type]
        await happening.happen(fault, runs)
    return runs


async def test_a_fault_that_nobody_sees(tokenizer: PreTrainedTokenizerFast) -> None:
    runs = await happen(tokenizer, Fault.REPLICA, None)
    assert runs.times == 1
    assert runs.tally.requests > 0
    assert (runs.tally.broken, runs.tally.lost, runs.never_well) == (0, 0, 0)
    assert len(runs.recovery_s) == 1
    assert runs.left_behind == []


async def test_another_text_after_a_fault_is_a_lost_request(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    runs = await happen(tokenizer, Fault.REPLICA, [(41,)] * NEW_TOKENS)
    assert runs.tally.lost > 0
    assert runs.tally.wrong == runs.tally.lost


async def test_clients_that_leave_are_not_lost(tokenizer: PreTrainedTokenizerFast) -> None:
    runs = await happen(tokenizer, Fault.CLIENTS, None)
    assert (runs.tally.broken, runs.tally.lost) == (0, 0)
    assert runs.tally.requests > 0
    assert runs.tally.tries[Outcome.LEFT] == CLIENTS_THAT_LEAVE
