"""A replica over two nodes, which are simulated on this machine: its ranks may lie apart if the
configuration says so, and are refused if it does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from tests.serve.conftest import RunningApp, a_new_home, eventually, is_ready
from tests.serve.serve_process import ServeProcess
from tests.serve.test_ranks import texts_of

NODE_BYTES = 80 * 2**20
"""Of a node's object store; Ray's least is 75 MiB."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head without CPUs, and two nodes with one each."""
    home = tmp_path_factory.mktemp("home")
    with a_new_home(home), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        nodes = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": NODE_BYTES},
        )
        try:
            for _ in range(2):
                nodes.add_node(num_cpus=1, object_store_memory=NODE_BYTES)
            yield nodes
        finally:
            nodes.shutdown()  # type: ignore[no-untyped-call]


def settings_for(tiny_settings: dict[str, Any], placement: str) -> dict[str, Any]:
    return {
        **tiny_settings,
        "engine": {**tiny_settings["engine"], "tp_size": 2},
        "replicas": {**tiny_settings["replicas"], "num_cpus": 1.0, "placement": placement},
    }


def nodes_of(cluster: Cluster, kind: str) -> list[str]:
    """Of the living actors of that class."""
    return [
        actor["Address"]["NodeID"]
        for actor in cluster.global_state.actor_table(None).values()
        if actor["State"] == "ALIVE" and actor["ActorClassName"].startswith(kind)
    ]


def test_ranks_that_must_share_a_node_are_refused(
    cluster: Cluster, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    process = ServeProcess.start(
        tmp_path, settings_for(tiny_settings, "STRICT_PACK"), "--address", cluster.address
    )
    try:
        assert process.exit_code() == 2
    finally:
        process.kill()
    assert process.says(r"needs 2 CPUs on one node; the largest node has 1 .*PACK")


def test_ranks_that_may_lie_apart_say_the_same(
    cluster: Cluster, tiny_settings: dict[str, Any], tmp_path: Path, app: RunningApp
) -> None:
    expected = texts_of(app.url)
    process = ServeProcess.start(
        tmp_path, settings_for(tiny_settings, "PACK"), "--address", cluster.address
    )
    try:
        eventually(
            lambda: is_ready(process.url) or process.process.poll() is not None, "it is ready"
        )
        assert process.process.poll() is None, process.log.read_text()
        assert texts_of(process.url) == expected
        (replica,), (rank,) = nodes_of(cluster, "ServeReplica"), nodes_of(cluster, "RankActor")
        assert replica != rank
    finally:
        process.kill()
