"""The Ray shell around the policy board: waiting and waking, no arithmetic.

`PolicyPublisher` is plain, so that it runs in any event loop. Serve runs `PolicyActor` as a
deployment actor; its event loop is the only writer of the board.
"""

import asyncio
import os
import time
from typing import Any

import ray

from policy.board import Introduction, Publication
from policy.boards import PolicyBoards
from policy.choice import parse_choice
from policy.stats import StatsWindow

LONG_POLL_S = 30.0


class PolicyPublisher:
    """Publishes the table to replicas that wait for it. Arguments are plain JSON values."""

    def __init__(
        self, configured: str | dict[str, Any], max_draft_len: int, long_poll_s: float = LONG_POLL_S
    ) -> None:
        self._boards = PolicyBoards(parse_choice(configured), max_draft_len, time.time)
        self._configured = parse_choice(configured)
        self._changed = asyncio.Condition()
        self._long_poll_s = long_poll_s

    async def newer_than(self, replica_id: str, held: Publication) -> Publication | None:
        """Wait for a table newer than the one held; None when there was none for a while."""
        async with self._changed:
            if self._boards.subscribe(replica_id, held):
                self._changed.notify_all()
            try:
                async with asyncio.timeout(self._long_poll_s):
                    await self._changed.wait_for(
                        lambda: self._boards.newer_than(replica_id, held.table.version) is not None
                    )
            except TimeoutError:
                return None
            return self._boards.newer_than(replica_id, held.table.version)

    async def introduce(self, replica_id: str, said: Introduction) -> None:
        """A replica tells its kind and what it knows; before it asks for tables."""
        await self._told(self._boards.introduce(replica_id, said))

    async def may_calibrate(self, replica_id: str, said: Introduction) -> bool:
        """Whether this replica, which has no calibration, is to make one for its kind."""
        return self._boards.may_calibrate(replica_id, said)

    async def observe(self, replica_id: str, window: StatsWindow) -> dict[str, Any] | None:
        """Take in what a replica counted. Now and then the answer is what was learned, to keep for
        an actor after this one."""
        await self._told(self._boards.observe(replica_id, window))
        return self._boards.of(replica_id).snapshot(replica_id)

    async def explain(self, batch_size: int) -> dict[str, Any]:
        """Why the table has its length at a batch size, in words and numbers: "text"."""
        return self._boards.explain(batch_size)

    async def explain_table(self) -> dict[str, Any]:
        """Each kind's table rung by rung, with what its lengths give over none."""
        return self._boards.explain_table()

    async def _told(self, has_changed: bool) -> None:
        if has_changed:
            async with self._changed:
                self._changed.notify_all()

    async def note_stage(self, replica_id: str, stage: str) -> None:
        """Take note of what a replica is doing."""
        self._boards.of(replica_id).note_stage(replica_id, stage)

    async def set_policy(self, policy: str | bool | dict[str, Any]) -> dict[str, Any]:
        """Publish what a person chose; returns `describe()`. Raises ValueError in one line."""
        choice = parse_choice(policy)
        async with self._changed:
            self._boards.set_by_hand(choice)
            self._changed.notify_all()
        return await self.describe()

    async def configure(self, policy: str | bool | dict[str, Any]) -> dict[str, Any]:
        """A policy that the configuration names: published once, when it is new. So each replica
        may tell it at its start, and what a person has set since then stays. Raises ValueError."""
        choice = parse_choice(policy)
        if choice != self._configured:
            described = await self.set_policy(policy)
            self._configured = choice
            return described
        return await self.describe()

    async def describe(self) -> dict[str, Any]:
        """Table, history, replicas, and this actor's process id."""
        return {**self._boards.describe(), "pid": os.getpid()}


@ray.remote
class PolicyActor(PolicyPublisher):
    """The publisher as a Ray actor; Serve finds it by this name, so the name is decorated."""
