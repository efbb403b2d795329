from dataclasses import dataclass, field

from deployments.routing.steering import Steering, wanted


@dataclass(frozen=True)
class Id:
    unique_id: str


@dataclass(frozen=True)
class Replica:
    name: str
    replica_id: Id = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "replica_id", Id(self.name))


A, B, C = (Replica(name) for name in "abc")


def test_a_call_that_says_nothing_may_go_anywhere() -> None:
    assert wanted([A, B], [{"prompt": "a"}]) == [A, B]
    assert wanted([A, B], ["a", Steering()]) == [A, B]
    assert wanted([], ["a", Steering(only="a")]) == []


def test_wishes_are_met_where_they_can_be() -> None:
    assert wanted([A, B, C], ["x", Steering(only="b")]) == [B]
    assert wanted([A, B, C], ["x", Steering(avoided=frozenset("ab"))]) == [C]
    assert wanted([A, B], ["x", Steering(only="c")]) == [A, B]
    assert wanted([A, B], ["x", Steering(avoided=frozenset("ab"))]) == [A, B]
