"""Calls end when the router is dead that they came from, and only then."""

import asyncio
from contextlib import ExitStack

import pytest

from deployments.failover.callers import CHECK_S, Caller, Callers, is_alive, this_caller

ROUTER, OTHER = Caller("router", "serve"), Caller("other", "serve")


class Watch:
    """Callers whose checks come when they are told to."""

    def __init__(self) -> None:
        self.alive = {ROUTER: True, OTHER: True}
        self.ended: list[str] = []
        self.slept: list[float] = []
        self._checks = asyncio.Semaphore(0)
        self._asleep = asyncio.Event()
        self.callers = Callers(lambda caller: self.alive[caller], self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._asleep.set()
        await self._checks.acquire()

    async def check(self) -> None:
        """One look at all callers, up to the next sleep or the end of the watch."""
        await self._asleep.wait()
        self._asleep.clear()
        self._checks.release()
        assert self.callers._watch is not None
        again = asyncio.create_task(self._asleep.wait())
        await asyncio.wait({self.callers._watch, again}, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()

    def call(self, stack: ExitStack, caller: Caller | None, name: str) -> None:
        stack.enter_context(self.callers.watching(caller, lambda: self.ended.append(name)))


async def test_calls_of_a_dead_caller_are_ended_once_and_others_go_on() -> None:
    watch = Watch()
    with ExitStack() as stack:
        for caller, name in ((ROUTER, "a"), (OTHER, "b"), (ROUTER, "c"), (None, "d")):
            watch.call(stack, caller, name)
        await watch.check()
        watch.alive[ROUTER] = False
        await watch.check()
        assert watch.ended == []  # it was missed once
        for _ in range(3):
            await watch.check()
        assert watch.ended == ["a", "c"]
        assert set(watch.slept) == {CHECK_S}


async def test_one_that_was_missed_and_is_there_again_is_alive() -> None:
    watch = Watch()
    with ExitStack() as stack:
        watch.call(stack, ROUTER, "a")
        for alive in (False, True, False, True):
            watch.alive[ROUTER] = alive
            await watch.check()
    assert watch.ended == []


async def test_nobody_is_asked_about_while_there_is_no_call() -> None:
    watch = Watch()
    for _ in range(2):
        with ExitStack() as stack:
            watch.call(stack, ROUTER, "a")
            await watch.check()
        await watch.check()
        assert watch.callers._watch is None
    watch.alive[ROUTER] = False
    with ExitStack() as stack:
        watch.call(stack, ROUTER, "late")
        await watch.check()
        await watch.check()
    assert watch.ended == ["late"]


def test_who_cannot_be_asked_about_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(name: str, namespace: str) -> None:
        raise ConnectionError(f"{name} in {namespace}")

    monkeypatch.setattr("ray.get_actor", lost)
    assert is_alive(ROUTER)


def test_a_process_that_is_no_actor_has_no_name() -> None:
    assert this_caller() is None
