"""Bundles of ranks, and what is said where they don't fit."""

import pytest

from cluster.placement import placement_of, require_room
from engine.errors import ConfigError


def gpus(*counts: float) -> list[dict[str, float]]:
    return [{"GPU": count, "CPU": 64.0} if count else {"CPU": 64.0} for count in counts]


def test_a_bundle_for_each_rank() -> None:
    found = placement_of(4, 1.0, 1.0, "PACK")
    assert found.strategy == "PACK"
    assert found.bundles == ({"CPU": 1.0, "GPU": 1.0},) * 4
    assert placement_of(2, 0.5, 0.0, "STRICT_PACK").bundles == ({"CPU": 0.5},) * 2
    assert placement_of(2, 0.0, 0.5, "STRICT_PACK").bundles == ({"CPU": 0.0, "GPU": 0.5},) * 2


@pytest.mark.parametrize(
    ("cpus", "num_gpus", "reason"),
    [(1.0, 2.0, r"replicas\.num_gpus .* got 2"), (0.0, 0.0, r"replicas\.num_cpus .* got 0")],
)
def test_what_no_rank_can_run_with(cpus: float, num_gpus: float, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        placement_of(2, cpus, num_gpus, "PACK")


@pytest.mark.parametrize(
    ("nodes", "num_replicas"),
    [(gpus(4), 1), (gpus(0, 4), 1), (gpus(4, 4), 2), (gpus(8), 2), (gpus(2, 2, 5), 1)],
)
def test_room_on_one_node(nodes: list[dict[str, float]], num_replicas: int) -> None:
    require_room(placement_of(4, 1.0, 1.0, "STRICT_PACK"), nodes, num_replicas)


@pytest.mark.parametrize(
    ("nodes", "num_replicas", "reason"),
    [
        (gpus(2, 2), 1, "needs 4 GPUs on one node; the largest node has 2"),
        ([], 1, "needs 4 GPUs on one node; the largest node has 0"),
        (gpus(0, 0), 1, "the largest node has 0"),
        (gpus(4, 2, 2), 2, "num_replicas is 2, each with 4 GPUs on one node; .* room for 1"),
        ([{"GPU": 8.0, "CPU": 3.0}], 1, "needs 4 CPUs on one node; the largest node has 3"),
    ],
)
def test_no_room_on_one_node(nodes: list[dict[str, float]], num_replicas: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        require_room(placement_of(4, 1.0, 1.0, "STRICT_PACK"), nodes, num_replicas)


def test_a_replica_may_span_nodes() -> None:
    spanning = placement_of(4, 1.0, 1.0, "PACK")
    require_room(spanning, gpus(2, 2))
    require_room(spanning, gpus(1, 1, 1, 1, 4), num_replicas=2)
    with pytest.raises(ConfigError, match=r"4 ranks need GPUs in 4 portions of 1; .* has 3"):
        require_room(spanning, gpus(2, 1))
    halves = placement_of(2, 0.0, 0.5, "PACK")
    require_room(halves, gpus(1))
