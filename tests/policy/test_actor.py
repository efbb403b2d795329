"""The actor's class in a plain event loop: no Ray needed to test waiting and waking."""

import asyncio

import pytest

from policy.actor import PolicyPublisher
from policy.board import Publication, initial_publication
from policy.choice import parse_choice
from policy.stats import StatsWindow

INITIAL = initial_publication(parse_choice("off"))


def an_actor(long_poll_s: float = 30.0) -> PolicyPublisher:
    return PolicyPublisher("off", max_draft_len=8, long_poll_s=long_poll_s)


async def the_first_table(actor: PolicyPublisher, replica_id: str) -> Publication:
    published = await actor.newer_than(replica_id, INITIAL)
    assert published is not None
    return published


async def waiting(actor: PolicyPublisher, replica_ids: list[str]) -> None:
    """Return once these replicas are known to the actor, so that their polls are waiting."""
    while {r["replica_id"] for r in (await actor.describe())["replicas"]} < set(replica_ids):  # noqa: ASYNC110 - the actor offers no event; a turn of the loop is what is awaited
        await asyncio.sleep(0)


def test_hundreds_of_waiting_replicas_get_a_new_table_at_once() -> None:
    async def scenario() -> None:
        actor = an_actor()
        first = await the_first_table(actor, "r0")
        replica_ids = [f"r{i}" for i in range(800)]
        polls = [asyncio.create_task(actor.newer_than(r, first)) for r in replica_ids]
        await waiting(actor, replica_ids)
        described = await actor.set_policy({"fixed": 3})
        answers = await asyncio.gather(*polls)
        assert described["table"]["version"] == 2
        assert {answer.table.version for answer in answers if answer} == {2}
        assert None not in answers

    asyncio.run(scenario())


def test_a_poll_ends_empty_handed_when_nothing_is_new() -> None:
    async def scenario() -> None:
        actor = an_actor(long_poll_s=0.01)
        first = await the_first_table(actor, "a")
        assert await actor.newer_than("a", first) is None

    asyncio.run(scenario())


def test_a_held_table_wakes_the_replicas_that_wait() -> None:
    async def scenario() -> None:
        old = an_actor()
        await old.set_policy({"fixed": 2})
        await old.set_policy({"fixed": 5})
        held = await the_first_table(old, "a")
        fresh = an_actor()
        first = await the_first_table(fresh, "b")
        poll = asyncio.create_task(fresh.newer_than("b", first))
        await waiting(fresh, ["b"])
        resubscribed = asyncio.create_task(fresh.newer_than("a", held))
        assert await poll == held
        resubscribed.cancel()

    asyncio.run(scenario())


def test_a_cancelled_poll_leaves_the_actor_answering() -> None:
    async def scenario() -> None:
        actor = an_actor()
        first = await the_first_table(actor, "a")
        poll = asyncio.create_task(actor.newer_than("a", first))
        await asyncio.sleep(0)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        await actor.observe("a", StatsWindow(table_version=1, steps=4))
        await actor.note_stage("a", "ready")
        (replica,) = (await actor.describe())["replicas"]
        assert (replica["steps"], replica["stage"]) == (4, "ready")

    asyncio.run(scenario())


def test_a_bad_policy_is_refused_and_changes_nothing() -> None:
    async def scenario() -> None:
        actor = an_actor()
        for bad in ("on", {"fixed": 9}):
            with pytest.raises(ValueError, match="got"):
                await actor.set_policy(bad)
        assert (await actor.describe())["table"]["version"] == 1

    asyncio.run(scenario())
