"""What Serve makes of the builder, without starting anything."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray import serve
from ray.serve.schema import ServeDeploySchema

from deployments.app import DEPLOYMENT_NAME, ROUTER_NAME, BuilderArguments, build
from deployments.config import CONTROL_SLOTS, AppConfig
from engine.errors import ConfigError

ROOT = Path(__file__).parents[2]


def built(arguments: dict[str, Any]) -> Any:
    application = build(BuilderArguments.model_validate(arguments))
    assert isinstance(application, serve.Application)
    # Serve offers no public way to look into an application.
    return application._bound_deployment


def test_arguments_of_serve_run_reach_the_deployment() -> None:
    deployment = built(
        {"model": "x", "policy": "off", "replicas.num_replicas": "3", "replicas.num_cpus": "2"}
    )
    assert deployment.num_replicas == 3
    assert deployment.ray_actor_options["num_cpus"] == 2
    (actor,) = deployment._deployment_config.deployment_actors
    assert actor.init_kwargs["configured"] == "off"


def test_the_limits_leave_room_above_the_batch() -> None:
    deployment = built({"engine": {"max_num_seqs": 10, "max_num_waiting": 20}})
    assert deployment.max_ongoing_requests == 10 + 20 + CONTROL_SLOTS
    assert deployment._deployment_config.max_queued_requests == -1
    assert deployment._deployment_config.graceful_shutdown_timeout_s == 120


def test_the_policy_actor_knows_how_long_a_draft_can_be() -> None:
    (actor,) = built({"drafter.kind": "none"})._deployment_config.deployment_actors
    assert actor.init_kwargs == {"configured": "off", "max_draft_len": 0}


def test_a_router_stands_before_the_engines_where_it_is_asked_for() -> None:
    router = built({"resilient": True, "router.num_replicas": "3", "replicas.num_replicas": "2"})
    assert router.name == ROUTER_NAME
    assert router.num_replicas == 3
    (_, engines) = router.init_args
    assert engines._bound_deployment.name == DEPLOYMENT_NAME
    assert engines._bound_deployment.num_replicas == 2
    assert built({}).name == DEPLOYMENT_NAME, "one hop, where it is not"


def test_a_bad_argument_is_one_line() -> None:
    with pytest.raises(ConfigError, match="did you mean 'model'"):
        BuilderArguments.model_validate({"modle": "x"})


def test_serve_build_writes_a_config_that_serve_deploy_reads(tmp_path: Path) -> None:
    output = tmp_path / "deploy.yaml"
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from ray.serve.scripts import cli; cli()",
            *("build", "deployments.app:app", "-o", str(output)),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    config = ServeDeploySchema.model_validate(yaml.safe_load(output.read_text()))
    (application,) = config.applications
    assert application.import_path == "deployments.app:app"
    (deployment,) = application.deployments
    assert deployment.name == "paceline"
    assert deployment.max_ongoing_requests == AppConfig().max_ongoing_requests


def test_the_deploy_example_is_read() -> None:
    example = yaml.safe_load((ROOT / "examples" / "deploy.yaml").read_text())
    (application,) = ServeDeploySchema.model_validate(example).applications
    assert application.import_path == "deployments.app:build"
    assert built(application.args).num_replicas == 2
