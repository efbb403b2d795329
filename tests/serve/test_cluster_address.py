"""`--address` with a cluster that is there."""

from typing import Any

import pytest
import ray

from deployments.config import parse_config
from deployments.launcher import Launcher
from deployments.reach import require_ray
from engine.errors import ConfigError
from tests.serve.conftest import RunningApp


@pytest.mark.usefixtures("app")
def test_a_running_cluster_is_accepted() -> None:
    require_ray(ray.get_runtime_context().gcs_address)


def test_an_application_that_runs_there_is_left_alone(
    app: RunningApp, tiny_settings: dict[str, Any]
) -> None:
    version = app.set_policy({"fixed": 1})["table"]["version"]
    address = ray.get_runtime_context().gcs_address
    newcomer = Launcher(parse_config(tiny_settings, "test"), address)
    with pytest.raises(ConfigError, match="an application named 'paceline' runs there already"):
        newcomer.deploy()
    newcomer.stop()
    assert app.get("/policy")["table"]["version"] == version
