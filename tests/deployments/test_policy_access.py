import pytest

from cluster.policy_channel import PolicyActorLost, PolicyChannel
from deployments.policy_access import PolicyAccess
from engine.errors import RequestError
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


@pytest.mark.parametrize("bad", [None, "on", {"fixed": 9}, {"table": {"x": 1}}])
async def test_a_bad_policy_is_the_requests_fault(bad: object) -> None:
    with pytest.raises(RequestError, match=r"^policy: .*got") as caught:
        await access(PolicyPublisher("off", max_draft_len=8)).set(bad)
    assert caught.value.field == "policy"
