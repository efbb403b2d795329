"""Changes while serving: settings without a restart, and a stop that lets answers finish."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deployments.app import BuilderArguments, build
from deployments.launcher import APP_NAME, Launcher, set_environment
from tests.serve.conftest import WAIT_S, RunningApp, a_new_home, eventually, free_port

LONG = {"model": "tiny", "prompt": "Once", "max_tokens": 600, "stream": True, "ignore_eos": True}


class Deployed:
    """An application that is deployed again with other settings."""

    def __init__(self, settings: dict[str, Any], port: int) -> None:
        self.arguments = BuilderArguments.model_validate(settings)
        self.app = RunningApp(f"http://127.0.0.1:{port}")

    def deploy(self, user_config: dict[str, Any]) -> None:
        """As `serve deploy` does: Serve is told the target, and goes there by itself."""
        from ray import serve

        application = build(self.arguments)
        deployment = application._bound_deployment.options(user_config=user_config)
        again = deployment.bind(*application._bound_deployment.init_args)
        serve.run_many(
            [serve.RunTarget(again, APP_NAME, "/")],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )


@pytest.fixture
def deployed(tmp_path: Path, tiny_settings: dict[str, Any]) -> Iterator[Deployed]:
    port = free_port()
    settings = {**tiny_settings, "policy": "off", "server": {"port": port}}
    settings["replicas"] = {**tiny_settings["replicas"], "graceful_shutdown_timeout_s": 60.0}
    one = Deployed(settings, port)
    launcher = Launcher(one.arguments.root, address=None)
    set_environment(os.environ)
    try:
        with a_new_home(tmp_path):
            launcher.start_ray()
        launcher.start_serve()
        one.deploy({})
        eventually(lambda: launcher.state().ready, "the application is ready")
        yield one
    finally:
        launcher.stop()


def test_settings_change_under_a_running_answer_and_a_stop_lets_it_finish(
    deployed: Deployed, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann: first-key\n")
    keys.chmod(0o600)
    asyncio.run(change(deployed, keys))


async def change(deployed: Deployed, keys: Path) -> None:
    from ray import serve

    async with httpx.AsyncClient(base_url=deployed.app.url, timeout=WAIT_S) as client:
        replica_id = (await client.get("/policy")).json()["replicas"][0]["replica_id"]
        async with client.stream("POST", "/v1/completions", json=LONG) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            user_config = {
                "policy": {"fixed": 2},
                "limits": {"max_n": 1},
                "api_keys_file": str(keys),
            }
            await asyncio.to_thread(deployed.deploy, user_config)
            async with asyncio.timeout(WAIT_S):
                while (await client.get("/policy")).status_code != 401:
                    pass  # each question waits for its answer
            client.headers["Authorization"] = "Bearer first-key"
            described = (await client.get("/policy")).json()
            assert described["table"]["mode"] == "fixed"
            assert described["replicas"][0]["replica_id"] == replica_id
            body = {"model": "tiny", "prompt": "a", "n": 2}
            refused = await client.post("/v1/completions", json=body)
            assert refused.json()["error"]["param"] == "n"
            rest = [line async for line in lines]
        assert_whole(rest)

        async with client.stream("POST", "/v1/completions", json=LONG) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            await asyncio.to_thread(serve.delete, APP_NAME, _blocking=False)
            rest = [line async for line in lines]
        assert_whole(rest)


def assert_whole(lines: list[str]) -> None:
    *events, done = [line.removeprefix("data: ") for line in lines if line]
    assert done == "[DONE]"
    assert json.loads(events[-1])["choices"][0]["finish_reason"] == "length"
