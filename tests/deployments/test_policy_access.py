from typing import Any

import pytest

from cluster.policy_channel import PolicyActorLost, PolicyChannel
from deployments.config import parse_config
from deployments.policy_access import PolicyAccess
from engine.errors import ConfigError, RequestError
from policy.actor import PolicyPublisher
from policy.board import initial_publication
from policy.choice import parse_choice
from policy.stats import StatsWindow

CONFIGURED = parse_choice({"fixed": 2})


def access(actor: PolicyPublisher | None) -> PolicyAccess:
    async def connect() -> PolicyPublisher:
        if actor is None:
            raise PolicyActorLost("there is no policy actor at the moment")
        return actor

    channel = PolicyChannel(
        "r", initial_publication(CONFIGURED), connect, lambda table: None, StatsWindow
    )
    return PolicyAccess("r", channel, connect, max_draft_len=8)


async def test_the_actor_answers_for_everybody() -> None:
    there = access(PolicyPublisher(CONFIGURED.setting, max_draft_len=8))
    described = await there.set({"table": {"1": 5}})
    assert described["table"]["rungs"] == [[1, 5]]
    assert described["table"]["version"] == 2
    described = await there.get()
    assert described["table"]["source"] == "hand"
    assert described["policy_actor"]["reachable"]


async def test_without_the_actor_a_replica_tells_what_it_holds() -> None:
    described = await access(None).get()
    assert described["table"]["version"] == 0
    assert described["table"]["mode"] == "fixed"
    assert [replica["replica_id"] for replica in described["replicas"]] == ["r"]
    assert described["policy_actor"] == {"reachable": False, "heard_s_ago": None}


async def test_without_the_actor_nothing_can_be_set() -> None:
    with pytest.raises(PolicyActorLost):
        await access(None).set("off")


async def test_the_actor_alone_explains() -> None:
    class Explaining(PolicyPublisher):
        async def explain(self, batch_size: int) -> dict[str, Any]:
            return {"text": f"at batch {batch_size}"}

    assert await access(Explaining("off", max_draft_len=8)).explain(8) == {"text": "at batch 8"}
    with pytest.raises(PolicyActorLost):
        await access(None).explain(8)


@pytest.mark.parametrize("bad", [None, "on", {"fixed": 9}, {"table": {"x": 1}}])
async def test_a_bad_policy_is_the_requests_fault(bad: object) -> None:
    with pytest.raises(RequestError, match=r"^policy: .*got") as caught:
        await access(PolicyPublisher("off", max_draft_len=8)).set(bad)
    assert caught.value.field == "policy"


@pytest.mark.parametrize(
    ("bad", "in_request", "in_config"),
    [
        ("on", "policy: must be adaptive, off, {fixed", "policy must be adaptive, off, {fixed"),
        ({"fixed": 17}, "policy: fixed must be between", "policy.fixed must be between"),
        ({"table": {2: 17}}, "policy: table[2] must be between", "policy.table[2] must be between"),
        (
            {"table": {0: 1}},
            "policy: table must have batch sizes between 1 and 2147483647, got 0",
            "policy.table must have batch sizes between 1 and 2147483647, got 0",
        ),
        (
            {"table": {1.5: 1}},
            "policy: table must have whole numbers as batch sizes, got 1.5",
            "policy.table must have whole numbers as batch sizes, got 1.5",
        ),
        (
            {"table": dict.fromkeys(range(1, 60_001), 1)},
            "policy: table must have at most 64 batch sizes, got 60000",
            "policy.table must have at most 64 batch sizes, got 60000",
        ),
        (
            {"table": {1: 1, "1": 1}},
            "policy: table gives batch size 1 twice",
            "policy.table gives batch size 1 twice",
        ),
        ({"fixed": 16}, "policy: draft length must be", "policy: draft length must be"),
    ],
)
async def test_a_fault_reads_well_in_a_request_and_in_a_configuration(
    bad: object, in_request: str, in_config: str
) -> None:
    with pytest.raises(RequestError) as refused:
        await access(None).set(bad)
    assert str(refused.value).startswith(in_request)
    with pytest.raises(ConfigError) as caught:
        parse_config({"policy": bad}, "args")
    assert str(caught.value).removeprefix("args: ").startswith(in_config)
    assert max(len(str(refused.value)), len(str(caught.value))) < 200
