"""What a router asks of the engines behind it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deployments.failover import serve_replicas
from deployments.failover.replies import Health
from deployments.failover.serve_replicas import MOST_SILENT, ServeReplicas
from deployments.routing.steering import Steering
from engine.errors import EngineDead
from tests.deployments.fake_loop import STATUS

Answer = Callable[[], Awaitable[Health]]


class Handle:
    """Of replicas that answer one after the other, whoever is asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.avoided: list[frozenset[str]] = []
        self.health = self

    def options(self, **_: Any) -> None:
        return None

    def remote(self, steering: Steering) -> Awaitable[Health]:
        self.avoided.append(steering.avoided)
        return self.answers.pop(0)()


async def well() -> Health:
    return Health("well", STATUS, "", 0.5)


async def dead() -> Health:
    return Health("dead", None, "its thread ended", None)


async def dies() -> Health:
    raise RuntimeError("the actor died")


async def hangs() -> Health:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("first", [dies, hangs])
async def test_one_that_says_nothing_speaks_for_itself_alone(
    first: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_replicas, "HEALTH_S", 0.01)
    replicas = ServeReplicas(Handle(first, well))
    assert await replicas.health() == STATUS
    assert replicas.heard_s_ago() == 0.5


async def test_nobody_who_answers_is_no_health() -> None:
    handle = Handle(*[dies] * MOST_SILENT, well)
    with pytest.raises(EngineDead, match="the actor died"):
        await ServeReplicas(handle).health()


async def test_others_are_asked_before_one_that_is_dead_is_believed() -> None:
    handle = Handle(dead, well)
    assert await ServeReplicas(handle).health() == STATUS
    assert handle.avoided == [frozenset(), {"dead"}]
    with pytest.raises(EngineDead, match="its thread ended"):
        await ServeReplicas(Handle(dead, dead)).health()
