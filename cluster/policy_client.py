"""Calls to the policy actor over Ray."""

import asyncio
from typing import Any, Final

import ray
from ray import serve
from ray.exceptions import RayError

from cluster.policy_channel import PolicyActorLost
from policy.board import Introduction, Publication
from policy.stats import StatsWindow

POLICY_ACTOR: Final = "policy"
"""Name of the policy actor within its deployment."""

ANSWER_S: Final = 10.0


def describe_from_outside(app_name: str, deployment_name: str) -> dict[str, Any] | None:
    """What the policy actor of an application says, asked from a driver; None when it can't.

    `serve.get_deployment_actor` works within replicas only, so the actor is found by its name,
    which Serve makes of the application, the deployment, its code version and the actor.
    """
    # Typed by hand: Ray's own annotations know neither the dictionaries nor the methods.
    actors: Any = ray.util.list_named_actors(all_namespaces=True)
    for actor in actors:
        parts = actor["name"].split("::")
        if len(parts) == 5 and parts[1:3] == [app_name, deployment_name]:
            if parts[4] != POLICY_ACTOR:
                continue
            try:
                handle: Any = ray.get_actor(actor["name"], namespace=actor["namespace"])
                described: dict[str, Any] = ray.get(handle.describe.remote(), timeout=ANSWER_S)
            except (ValueError, RayError):
                continue
            return described
    return None


class RayPolicyClient:
    """One policy actor. After a failure it stays useless: connect again."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def newer_than(self, replica_id: str, held: Publication) -> Publication | None:
        """Long poll. Raises whatever Ray raises when the actor is gone."""
        newer: Publication | None = await self._handle.newer_than.remote(replica_id, held)
        return newer

    async def introduce(self, replica_id: str, said: Introduction) -> None:
        await self._handle.introduce.remote(replica_id, said)

    async def may_calibrate(self, replica_id: str, said: Introduction) -> bool:
        return bool(await self._handle.may_calibrate.remote(replica_id, said))

    async def observe(self, replica_id: str, window: StatsWindow) -> dict[str, Any] | None:
        learned: dict[str, Any] | None = await self._handle.observe.remote(replica_id, window)
        return learned

    async def note_stage(self, replica_id: str, stage: str) -> None:
        await self._handle.note_stage.remote(replica_id, stage)

    def post_stage(self, replica_id: str, stage: str) -> None:
        """Note the stage without waiting for an answer; from any thread."""
        self._handle.note_stage.remote(replica_id, stage)

    async def set_policy(self, policy: str | dict[str, Any]) -> dict[str, Any]:
        """Publish a policy; returns the actor's description. Raises PolicyActorLost."""
        return await self._ask("set_policy", policy)

    async def configure(self, policy: str | dict[str, Any]) -> None:
        """Put a configured policy in force, if it was not the last one configured. Raises
        PolicyActorLost."""
        await self._ask("configure", policy)

    async def describe(self) -> dict[str, Any]:
        """Table, replicas and history. Raises PolicyActorLost."""
        return await self._ask("describe")

    async def explain(self, batch_size: int) -> dict[str, Any]:
        """Why a batch size has its draft length. Raises PolicyActorLost."""
        return await self._ask("explain", batch_size)

    async def explain_table(self) -> dict[str, Any]:
        """Each kind's table, rung by rung. Raises PolicyActorLost."""
        return await self._ask("explain_table")

    async def _ask(self, method: str, *arguments: object) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_S):
                answer: dict[str, Any] = await getattr(self._handle, method).remote(*arguments)
        except Exception as error:
            raise PolicyActorLost(
                f"the policy actor does not answer ({type(error).__name__}); it is being restarted"
            ) from error
        return answer


async def connect_policy_actor() -> RayPolicyClient:
    """The policy actor of the replica that this runs in. Raises PolicyActorLost."""
    try:
        # Off the event loop: the look-up is a blocking call to the cluster's directory.
        handle: Any = await asyncio.to_thread(serve.get_deployment_actor, POLICY_ACTOR)
    except ValueError:
        raise PolicyActorLost("there is no policy actor at the moment; try again shortly") from None
    return RayPolicyClient(handle)
