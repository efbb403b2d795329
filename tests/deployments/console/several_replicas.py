"""What the policy actor says of three replicas of two kinds, one of which failed to start."""

import asyncio
from typing import Any

from policy.actor import PolicyPublisher
from policy.board import Introduction
from policy.stats import Occupancy, StatsWindow
from tests.policy.grids import grid

FAILURE = "failed: <img src=x onerror=alert(1)> can't be loaded"


def report(occupancy: Occupancy, version: int, tokens: int) -> StatsWindow:
    window = StatsWindow(version, occupancy, wall_seconds=2.0, steps=50)
    window.record_rounds(num_drafted=4, num_accepted=3, num_emitted=4, times=tokens // 4)
    return window


async def publisher() -> PolicyPublisher:
    actor = PolicyPublisher("adaptive", 4)
    for name, kind in (("h200-a", "fast"), ("h200-b", "fast"), ("cpu-a", "slow")):
        said = Introduction(kind, f"a {kind} machine", 8, 4, calibration=grid())
        await actor.introduce(name, said)
        await actor.note_stage(name, "ready")
    await actor.note_stage("cpu-a", FAILURE)
    busy = Occupancy(running=7, waiting=3, decoding=6, draft_len=2, kv_use=0.5)
    await actor.observe("h200-a", report(busy, version=2, tokens=400))
    quiet = Occupancy(running=2, decoding=2, draft_len=4, kv_use=0.1)
    await actor.observe("h200-b", report(quiet, version=1, tokens=200))
    return actor


class SeveralReplicas:
    """A `PolicyPort` of them."""

    def __init__(self, actor: PolicyPublisher) -> None:
        self.is_reachable = True
        self.silent: set[str] = set()
        """Not heard of for a minute."""
        self.answers = asyncio.Event()
        self.answers.set()
        self._actor = actor
        self.explain = actor.explain
        self.explain_table = actor.explain_table

    async def get(self) -> dict[str, Any]:
        await self.answers.wait()
        described = await self._actor.describe()
        for replica in described["replicas"]:
            if replica["replica_id"] in self.silent:
                replica |= {"seen_s_ago": 60.0, "is_silent": True}
        if not self.is_reachable:
            described = {"table": described["table"], "replicas": [_bare(described["replicas"][0])]}
        actor = {"reachable": self.is_reachable, "heard_s_ago": 0.1}
        return {**described, "policy_actor": actor}

    async def set(self, policy: object) -> dict[str, Any]:
        raise NotImplementedError("nobody sets it here")

    def heard_s_ago(self) -> float | None:
        return 0.1


def _bare(replica: dict[str, Any]) -> dict[str, Any]:
    """What a replica tells of itself while there is no actor."""
    names = ("replica_id", "version_in_force", "seen_s_ago", "is_silent", "stage")
    return {name: replica[name] for name in names}
