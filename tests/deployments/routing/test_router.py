"""The router as Ray Serve calls it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.common import (
    DeploymentHandleSource,
    DeploymentID,
    ReplicaID,
    RequestMetadata,
)
from ray.serve.request_router import PendingRequest

from deployments.app import build_application
from deployments.config import parse_config
from deployments.routing.books import OUTSTANDING
from deployments.routing.router import LeastTokensRouter

DEPLOYMENT = DeploymentID("paceline", "app")


def replica(name: str, tokens: float | None = None) -> Any:
    """What the router asks of a RunningReplica."""
    return SimpleNamespace(
        replica_id=ReplicaID(name, DEPLOYMENT),
        routing_stats={} if tokens is None else {OUTSTANDING: tokens},
    )


def request(name: str, prompt: str = "short") -> PendingRequest:
    return PendingRequest(
        args=[{"prompt": prompt}],
        kwargs={},
        metadata=RequestMetadata(request_id=name, internal_request_id=name),
    )


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> LeastTokensRouter:
    made = LeastTokensRouter(DEPLOYMENT, DeploymentHandleSource.PROXY)
    # Serve's own part of it probes actors and writes metrics.
    monkeypatch.setattr("ray.serve.request_router.RequestRouter.update_replicas", lambda *_: None)
    return made


async def ranked(router: LeastTokensRouter, replicas: list[Any], asked: PendingRequest) -> str:
    ranks = await router.choose_replicas(replicas, asked)
    assert sorted(r.replica_id.unique_id for [r] in ranks) == sorted(
        r.replica_id.unique_id for r in replicas
    )
    best: str = ranks[0][0].replica_id.unique_id
    return best


def test_requests_that_come_at_once_are_spread(router: LeastTokensRouter) -> None:
    async def main() -> None:
        replicas = [replica("a"), replica("b"), replica("c")]
        asked = [request(str(number)) for number in range(6)]
        best = [await ranked(router, replicas, each) for each in asked]
        assert sorted(best) == ["a", "a", "b", "b", "c", "c"]
        assert all(each.routing_context.should_backoff for each in asked)

    asyncio.run(main())


def test_it_hears_of_what_came_by_others(router: LeastTokensRouter) -> None:
    async def main() -> None:
        replicas = [replica("a", 5000.0), replica("b", 10.0)]
        router.update_replicas(replicas)
        assert await ranked(router, replicas, request("1")) == "b"

    asyncio.run(main())


def test_a_request_is_counted_until_it_ends_or_is_given_up(router: LeastTokensRouter) -> None:
    async def main() -> None:
        replicas = [replica("a"), replica("b")]
        long, cancelled = request("long", "x" * 100_000), request("gone", "y" * 200_000)
        assert await ranked(router, replicas, long) == "a"
        assert await ranked(router, replicas, cancelled) == "b"
        cancelled.future.cancel()
        await asyncio.sleep(0)
        assert await ranked(router, replicas, request("1")) == "b"
        await asyncio.to_thread(router.on_request_completed, replicas[0].replica_id, "long")
        await asyncio.sleep(0)
        assert await ranked(router, replicas, request("2")) == "a"

    asyncio.run(main())


def test_one_that_went_to_another_replica_is_counted_there(router: LeastTokensRouter) -> None:
    async def main() -> None:
        replicas = [replica("a"), replica("b")]
        asked = request("1", "x" * 100_000)
        assert await ranked(router, replicas, asked) == "a"
        router.on_request_routed(asked, replicas[1].replica_id, None)
        assert await ranked(router, replicas, request("2")) == "a"

    asyncio.run(main())


def test_one_that_ends_before_it_is_said_to_be_routed_leaves_nothing(
    router: LeastTokensRouter,
) -> None:
    async def main() -> None:
        replicas = [replica("a"), replica("b")]
        asked = request("1", "x" * 100_000)
        assert await ranked(router, replicas, asked) == "a"
        router.on_request_completed(replicas[1].replica_id, "1")
        await asyncio.sleep(0)
        router.on_request_routed(asked, replicas[1].replica_id, None)
        assert await ranked(router, replicas, request("2")) == "b"
        assert await ranked(router, replicas, request("3")) == "a"

    asyncio.run(main())


def test_it_is_the_router_of_the_application_unless_serves_own_is_asked_for() -> None:
    def router_of(**replicas: Any) -> Any:
        app = build_application(parse_config({"model": "x", "replicas": replicas}, "args"))
        return app._bound_deployment._deployment_config.request_router_config

    assert router_of().get_request_router_class().__name__ == "LeastTokensRouter"
    assert router_of(routing="two_choices").is_default_request_router()
