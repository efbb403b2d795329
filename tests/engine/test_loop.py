"""The engine thread: many callers at once, cancellation, failures that reach everybody."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from engine.config import DrafterConfig
from engine.core import Engine
from engine.errors import EngineDead, EngineFull, RequestError
from engine.loop import EngineLoop
from engine.request import Request, TokenDelta
from policy.stats import Occupancy
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.conftest import NEW_TOKENS, PROMPTS
from tests.engine.harness import greedy, tiny_engine

PATIENCE = 60
"""Seconds after which nobody will be told any more."""


class GatedEngine:
    """An engine whose steps wait for the test's permission."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.permits = threading.Semaphore(0)

    def step(self) -> list[TokenDelta]:
        self.permits.acquire()
        return self._engine.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.fixture
def engine(target: Path, draft: Path) -> Engine:
    return tiny_engine(target, draft_len=3, drafter=DrafterConfig(kind="model", model=draft))


@pytest.fixture
def loop(engine: Engine) -> Iterator[EngineLoop]:
    loop = EngineLoop(engine)
    loop.start()
    yield loop
    loop.close()


async def collect(stream: AsyncGenerator[TokenDelta, None]) -> list[int]:
    tokens: list[int] = []
    async for delta in stream:
        tokens += delta.token_ids
    return tokens


async def test_many_callers_get_their_own_tokens(
    loop: EngineLoop, expected: dict[str, list[int]]
) -> None:
    names = [(name, copy) for copy in range(10) for name in PROMPTS]
    results = await asyncio.gather(
        *(
            collect(loop.generate(greedy(f"{name} {copy}", PROMPTS[name], NEW_TOKENS)))
            for name, copy in names
        )
    )
    assert results == [expected[name] for name, _ in names]
    assert loop.drain_stats().emitted_tokens == sum(map(len, results))
    assert loop.drain_stats().steps == 0


async def test_closing_a_stream_frees_its_blocks_within_a_step(engine: Engine) -> None:
    gated = GatedEngine(engine)
    loop = EngineLoop(gated)  # type: ignore[arg-type]
    loop.start()
    try:
        gone = loop.generate(greedy("gone", PROMPTS["long"], 200))
        stays = loop.generate(greedy("stays", PROMPTS["short"], 200))
        first_of_stays = asyncio.ensure_future(anext(stays))
        gated.permits.release(2)
        await anext(gone)
        await first_of_stays
        assert loop.status().num_running == 2
        await gone.aclose()
        # The step in progress may have been planned before; the next one may not.
        seen = []
        for _ in range(2):
            gated.permits.release()
            await anext(stays)
            seen.append(loop.status().num_running)
        assert seen[-1] == 1
        used = loop.status().num_blocks - loop.status().num_free_blocks
        assert used <= 8, "the blocks of the closed request are still taken"
        await stays.aclose()
    finally:
        gated.permits.release(1000)
        loop.close()


async def test_cancelling_a_task_aborts_its_request(loop: EngineLoop) -> None:
    started = asyncio.Event()

    async def consume() -> None:
        async with aclosing(loop.generate(greedy("a", PROMPTS["short"], 250))) as stream:
            async for _ in stream:
                started.set()

    task = asyncio.create_task(consume())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The same id is free again: the abort was sent before this request.
    assert len(await collect(loop.generate(greedy("a", [4], 3)))) == 3
    status = loop.status()
    assert status.num_free_blocks == status.num_blocks


async def test_refusals_come_before_the_first_delta(engine: Engine) -> None:
    gated = GatedEngine(engine)
    loop = EngineLoop(gated)  # type: ignore[arg-type]
    loop.start()
    try:
        with pytest.raises(RequestError, match="at least one token"):
            await anext(loop.generate(Request("a", ())))
        first = loop.generate(greedy("b", [1], 4))
        first_delta = asyncio.ensure_future(anext(first))
        gated.permits.release()
        await first_delta
        duplicate = asyncio.ensure_future(anext(loop.generate(greedy("b", [1], 4))))
        gated.permits.release(100)
        with pytest.raises(RequestError, match="in flight"):
            await duplicate
        # The refused namesake's clean-up has not taken the first one down.
        assert len(await collect(first)) == 4 - len(first_delta.result().token_ids)
    finally:
        gated.permits.release(1000)
        loop.close()


async def test_a_full_engine_refuses(target: Path) -> None:
    loop = EngineLoop(tiny_engine(target, max_num_seqs=1, max_num_waiting=1))
    streams = [loop.generate(greedy(str(i), [1], 3)) for i in range(3)]
    tasks = [asyncio.create_task(collect(stream)) for stream in streams]
    await asyncio.sleep(0)  # all three are posted before the thread takes the first
    loop.start()
    try:
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, EngineFull) for result in results] == [False, False, True]
    finally:
        loop.close()


class PanicException(BaseException):
    """As Rust extensions raise it."""


@pytest.mark.parametrize("kind", [ZeroDivisionError, PanicException])
async def test_a_failed_step_reaches_everyone_and_the_health_check(
    engine: Engine, kind: type[BaseException]
) -> None:
    def explode(_plan: object, _drafts: object) -> None:
        raise kind("the accelerator is on fire")

    engine._executor.execute = explode  # type: ignore[method-assign, assignment]
    loop = EngineLoop(engine)
    tasks = [asyncio.create_task(collect(loop.generate(greedy(str(i), [1], 3)))) for i in range(3)]
    await asyncio.sleep(0)
    loop.start()
    for task in tasks:
        with pytest.raises(EngineDead, match=f"{kind.__name__}: the accelerator is on fire"):
            await asyncio.wait_for(task, PATIENCE)
    with pytest.raises(EngineDead, match="on fire"):
        loop.check_health()
    with pytest.raises(EngineDead, match="on fire"):
        await collect(loop.generate(greedy("late", [1], 3)))
    loop.close()


async def test_a_request_that_breaks_the_engine_is_told_with_all_others(engine: Engine) -> None:
    loop = EngineLoop(engine)
    requests = [
        greedy("before", PROMPTS["short"], 250),
        Request("broken", (1, None)),  # type: ignore[arg-type]
        greedy("behind", PROMPTS["short"], 250),
    ]
    tasks = [asyncio.create_task(collect(loop.generate(request))) for request in requests]
    await asyncio.sleep(0)
    loop.start()
    for task in tasks:
        with pytest.raises(EngineDead, match="TypeError"):
            await asyncio.wait_for(task, PATIENCE)
    loop.close()


async def test_closing_a_loop_that_was_never_started_answers_those_waiting(engine: Engine) -> None:
    loop = EngineLoop(engine)
    task = asyncio.create_task(collect(loop.generate(greedy("a", [1], 3))))
    await asyncio.sleep(0)
    await asyncio.to_thread(loop.close)
    with pytest.raises(EngineDead, match="shutting down"):
        await asyncio.wait_for(task, PATIENCE)


async def test_closing_the_loop_answers_those_in_flight(engine: Engine) -> None:
    loop = EngineLoop(engine)
    loop.start()
    stream = loop.generate(greedy("a", PROMPTS["short"], 250))
    await anext(stream)
    await asyncio.to_thread(loop.close)
    with pytest.raises(EngineDead, match="shutting down"):
        await collect(stream)
    with pytest.raises(EngineDead, match="shutting down"):
        await collect(loop.generate(greedy("b", [1], 3)))


async def test_a_new_table_is_in_force_between_two_steps(
    engine: Engine, expected: dict[str, list[int]]
) -> None:
    gated = GatedEngine(engine)
    loop = EngineLoop(gated)  # type: ignore[arg-type]
    loop.start()
    try:
        stream = loop.generate(greedy("a", PROMPTS["long"], NEW_TOKENS))
        first = asyncio.ensure_future(anext(stream))
        gated.permits.release()
        tokens = list((await first).token_ids)
        loop.set_table(SpeculationTable(9, fixed_rungs(0)))
        gated.permits.release(1000)
        drafted = []
        async for delta in stream:
            tokens += delta.token_ids
            drafted.append(delta.num_drafted)
        assert tokens == expected["long"]
        # The step that was about to begin may still draft.
        assert len(drafted) > 20
        assert not any(drafted[1:])
        assert loop.status().table_version == 9
    finally:
        gated.permits.release(1000)
        loop.close()


async def test_a_table_change_reaches_an_idle_engine(loop: EngineLoop) -> None:
    loop.set_table(SpeculationTable(4, fixed_rungs(2)))
    await collect(loop.generate(greedy("a", [1], 1)))  # commands are taken in order
    assert loop.status().table_version == 4
    assert loop.drain_stats().table_version == 4
    assert loop.drain_stats().table_version == 4


async def test_counts_come_with_what_the_engine_has_to_do(loop: EngineLoop) -> None:
    async with aclosing(loop.generate(greedy("a", [1, 2, 3], 40))) as deltas:
        await anext(deltas)
        at_work = loop.drain_stats().occupancy
        assert (at_work.running, at_work.decoding, at_work.waiting) == (1, 1, 0)
        assert 0 < at_work.kv_use < 1
        async for _ in deltas:
            pass
    await collect(loop.generate(greedy("b", [1], 1)))  # what ended has been cleared away
    assert loop.drain_stats().occupancy == Occupancy()
