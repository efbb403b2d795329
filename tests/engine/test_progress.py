"""How long an engine may be silent, and who notices when it is silent for longer."""

import asyncio
import threading

import pytest

from engine.core import Engine
from engine.errors import EngineDead
from engine.loop import EngineLoop
from engine.progress import MARGIN, Patience
from engine.rehearsal import MOST_TOKENS, rehearse
from engine.request import TokenDelta
from tests.engine.quick import Witness, answers, deltas_of, quick_engine, request, steps

STALL_S = 10.0


def test_patience_grows_with_the_step_alone() -> None:
    assert Patience(STALL_S).limit_s(512) == STALL_S
    patience = Patience(STALL_S, token_s=0.5)  # a large model on a CPU
    assert patience.limit_s(1) == STALL_S
    assert patience.limit_s(512) == MARGIN * 256
    patience.note(512, 25.6)
    assert patience.limit_s(512) == pytest.approx(MARGIN * 25.6)
    patience.note(1, 9.0)
    assert patience.limit_s(32) == pytest.approx(MARGIN * 1.6)
    patience.note(0, 1.0)


class Frozen:
    """An engine with a step that does not end before the test lets it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.permits = threading.Semaphore(0)
        self.stands = threading.Semaphore(0)

    def step(self) -> list[TokenDelta]:
        self.stands.release()
        self.permits.acquire()
        return self._engine.step()

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)


async def test_a_frozen_engine_is_noticed_and_an_idle_one_is_healthy() -> None:
    now_s = 0.0
    quick = quick_engine()
    rehearsed_s = rehearse(quick)
    engine = Frozen(quick)
    loop = EngineLoop(engine, lambda: now_s, token_s=rehearsed_s)  # type: ignore[arg-type]
    loop.start()
    try:
        now_s += 1000 * STALL_S
        loop.check_health()
        stream = loop.generate(request("short"))
        first = asyncio.ensure_future(anext(stream))
        for _ in ("the very first step", "a later one"):
            await asyncio.to_thread(engine.stands.acquire)
            now_s += STALL_S
            loop.check_health()
            now_s += 0.1
            with pytest.raises(EngineDead, match="finished no step for 10 s; 10 s are allowed"):
                loop.check_health()
            engine.permits.release()
            await first
        await asyncio.to_thread(engine.stands.acquire)
        engine.permits.release(1000)
        async for _ in stream:
            pass
    finally:
        engine.permits.release(1000)
        await asyncio.to_thread(loop.close)


async def test_work_that_nobody_takes_up_is_noticed() -> None:
    now_s = 0.0
    loop = EngineLoop(quick_engine(), clock=lambda: now_s)
    asking = asyncio.ensure_future(anext(loop.generate(request("short"))))
    await asyncio.sleep(0)
    loop._thread.is_alive = lambda: True  # type: ignore[method-assign]  # it never gets to run
    now_s += STALL_S + 1
    with pytest.raises(EngineDead, match="finished no step"):
        loop.check_health()
    del loop._thread.is_alive
    await asyncio.to_thread(loop.close)
    with pytest.raises(EngineDead):
        await asking


def test_a_rehearsal_times_a_prompt_and_leaves_nothing_behind() -> None:
    engine = quick_engine("ngram", 3)
    untouched = engine.status()
    witness = Witness(engine)
    readings = iter([0.0, 9.0, 20.0, 21.0])
    token_s = rehearse(engine, lambda: next(readings))
    part = witness.asked[0][0].slices[0]
    assert [plan.slices for plan, _ in witness.asked] == [(part,), (part,)]
    assert token_s == 1.0 / part.num_tokens
    assert 1 < part.num_tokens <= MOST_TOKENS
    assert engine.status() == untouched
    assert engine.drain_stats().steps == 0
    asked = request("long")
    told = deltas_of(steps(engine, asked), "long")
    assert [token for delta in told for token in delta.token_ids] == answers([asked])["long"]


def test_an_engine_too_small_for_a_whole_rehearsal_is_rehearsed_all_the_same() -> None:
    engine = quick_engine(num_blocks=2, max_step_tokens=6)
    witness = Witness(engine)
    assert rehearse(engine) > 0
    assert {plan.slices[0].num_tokens for plan, _ in witness.asked} == {6}
