"""The engines behind a router, reached through their deployment's handle."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from deployments.failover.replies import Facts, Health, Reply
from deployments.failover.serve_calls import is_cancelled, stream, told
from deployments.routing.steering import Steering
from engine.core import EngineStatus
from engine.errors import EngineDead, PacelineError
from engine.request import Request

ANSWER_S: Final = 15.0
"""For what a replica knows at once, or asks the policy actor, whom it gives 10 seconds."""
HEALTH_S: Final = 5.0
MOST_SILENT: Final = 3
"""Replicas that may fail to say whether they are well before none is: one that hangs, or dies at
this moment, says nothing of the others."""


class ServeReplicas:
    """A router's `Replicas`, and its `PolicyPort`."""

    def __init__(self, handle: Any) -> None:
        """`handle`: a DeploymentHandle of `EngineReplica`s."""
        self._handle = handle
        self._tokens = handle.options(stream=True, method_name="tokens")
        self._aborts: set[asyncio.Future[None]] = set()
        self._heard_s_ago: float | None = None

    async def facts(self) -> Facts:
        """Of the first replica that there is, however long that takes."""
        facts: Facts = await self._handle.facts.remote()
        return facts

    async def call(
        self, requests: tuple[Request, ...], avoided: frozenset[str]
    ) -> AsyncGenerator[Reply, None]:
        async with aclosing(stream(self._tokens, requests, Steering(avoided=avoided))) as replies:
            async for reply in replies:
                yield reply

    def abort(self, request_id: str, replica_id: str) -> None:
        ending = asyncio.ensure_future(self._abort(request_id, Steering(only=replica_id)))
        self._aborts.add(ending)
        ending.add_done_callback(self._aborts.discard)

    async def _abort(self, request_id: str, steering: Steering) -> None:
        try:
            await self._handle.abort.remote(request_id, steering)
        except Exception:  # a replica that is lost has ended it too
            return

    async def health(self) -> EngineStatus:
        """Of the first replica that is well, or that there is none."""
        avoided: frozenset[str] = frozenset()
        num_silent = 0
        while True:
            try:
                health: Health = await self._ask(
                    "health", Steering(avoided=avoided), limit_s=HEALTH_S
                )
            except EngineDead:
                num_silent += 1
                if num_silent == MOST_SILENT:
                    raise
                continue
            if health.status is not None:
                self._heard_s_ago = health.heard_s_ago
                return health.status
            if health.replica_id in avoided:
                raise EngineDead(health.failure)
            avoided |= {health.replica_id}

    async def get(self) -> dict[str, Any]:
        return dict(await self._ask("get_policy"))

    async def set(self, policy: object) -> dict[str, Any]:
        return dict(await self._ask("set_policy", policy))

    async def explain(self, batch_size: int) -> dict[str, Any]:
        return dict(await self._ask("explain_policy", batch_size))

    async def explain_table(self) -> dict[str, Any]:
        return dict(await self._ask("explain_table"))

    async def configure(self, setting: object) -> None:
        """Put a configured policy in force. Raises PolicyActorLost or EngineDead."""
        await self._ask("configure_policy", setting)

    def heard_s_ago(self) -> float | None:
        """As the replica said that was asked last whether it is well."""
        return self._heard_s_ago

    async def _ask(self, method: str, *arguments: object, limit_s: float = ANSWER_S) -> Any:
        """Raises what the replica raises on purpose, and EngineDead for whatever else."""
        try:
            async with asyncio.timeout(limit_s):
                return await getattr(self._handle, method).remote(*arguments)
        except TimeoutError:
            raise EngineDead(f"no replica answers within {limit_s:g} s") from None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise EngineDead("the replica gave the call up") from None
        except Exception as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, PacelineError):
                raise cause from None
            raise EngineDead(f"no replica answers: {told(error)}") from error
