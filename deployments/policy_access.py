"""GET and PUT /policy: through the policy actor, or from what this replica holds meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from cluster.policy_channel import PolicyActorLost, PolicyChannel
from engine.errors import RequestError
from policy.choice import parse_choice


class PolicyControl(Protocol):
    """A policy actor, as a person's side sees it. Raises PolicyActorLost when it is gone."""

    async def set_policy(self, policy: str | dict[str, Any]) -> dict[str, Any]: ...

    async def describe(self) -> dict[str, Any]: ...

    async def explain(self, batch_size: int) -> dict[str, Any]: ...

    async def explain_table(self) -> dict[str, Any]: ...


class PolicyAccess:
    """What one replica can tell and do about the policy."""

    def __init__(
        self,
        replica_id: str,
        channel: PolicyChannel,
        connect: Callable[[], Awaitable[PolicyControl]],
        max_draft_len: int,
    ) -> None:
        self._replica_id = replica_id
        self._channel = channel
        self._connect = connect
        self._max_draft_len = max_draft_len

    async def get(self) -> dict[str, Any]:
        """Table and replicas; `policy_actor` tells whether that is the actor's word or our own."""
        try:
            described = await (await self._connect()).describe()
        except PolicyActorLost:
            described, reachable = self._own_view(), False
        else:
            reachable = True
        return {
            **described,
            "policy_actor": {"reachable": reachable, "heard_s_ago": self.heard_s_ago()},
        }

    async def set(self, policy: object) -> dict[str, Any]:
        """Publish a policy and return the description with it.

        Raises RequestError (not a policy, or drafts too long) or PolicyActorLost.
        """
        try:
            choice = parse_choice(policy).limited_to(self._max_draft_len)
        except ValueError as error:
            raise RequestError("policy", f"policy: {error}") from None
        described = await (await self._connect()).set_policy(choice.setting)
        return {**described, "policy_actor": {"reachable": True, "heard_s_ago": 0.0}}

    async def explain(self, batch_size: int) -> dict[str, Any]:
        """Why that many sequences are drafted for as they are: words under "text".

        Raises PolicyActorLost: only the actor has the numbers.
        """
        return await (await self._connect()).explain(batch_size)

    async def explain_table(self) -> dict[str, Any]:
        """Each kind's table, rung by rung. Raises PolicyActorLost."""
        return await (await self._connect()).explain_table()

    def heard_s_ago(self) -> float | None:
        """Seconds since the actor last answered this replica; None: it never has."""
        return self._channel.status().heard_s_ago

    def _own_view(self) -> dict[str, Any]:
        held = self._channel.status().held
        return {
            "table": {
                "version": held.table.version,
                "rungs": [list(rung) for rung in held.table.rungs],
                "mode": held.mode,
                "source": held.source,
                "set_at_unix_s": held.set_at_unix_s,
            },
            "replicas": [
                {
                    "replica_id": self._replica_id,
                    "version_in_force": held.table.version,
                    "seen_s_ago": 0.0,
                    "is_silent": False,
                    "stage": "ready",
                }
            ],
        }
