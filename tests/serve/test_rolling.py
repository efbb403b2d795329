"""Changes while serving: settings without a restart, and a stop that lets answers finish."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.conftest import WAIT_S, a_new_home, eventually, free_port, is_ready
from tests.serve.serve_process import ROOT

LONG = {"model": "tiny", "prompt": "Once", "max_tokens": 600, "stream": True, "ignore_eos": True}


class Deployed:
    """An application in processes of its own, which is deployed again with other settings."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.url = f"http://127.0.0.1:{settings['server']['port']}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.deployer", json.dumps(settings)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, command: dict[str, Any]) -> None:
        """See `deployer.py`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        while (line := self._process.stdout.readline()) != "done\n":
            assert line, "the deployer ended"

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def deployed(tmp_path: Path, tiny_settings: dict[str, Any]) -> Iterator[Deployed]:
    settings = {**tiny_settings, "policy": "off", "server": {"port": free_port()}}
    settings["replicas"] = {**tiny_settings["replicas"], "graceful_shutdown_timeout_s": 60.0}
    with a_new_home(tmp_path):
        one = Deployed(settings)
        try:
            one.tell({"user_config": {}})
            eventually(lambda: is_ready(one.url), "the application is ready")
            yield one
        finally:
            one.end()


async def test_settings_change_under_a_running_answer_and_a_stop_lets_it_finish(
    deployed: Deployed, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann: first-key\n")
    keys.chmod(0o600)
    async with httpx.AsyncClient(base_url=deployed.url, timeout=WAIT_S) as client:
        replica_id = (await client.get("/policy")).json()["replicas"][0]["replica_id"]
        async with client.stream("POST", "/v1/completions", json=LONG) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            user_config = {
                "policy": {"fixed": 2},
                "limits": {"max_n": 1},
                "api_keys_file": str(keys),
            }
            await asyncio.to_thread(deployed.tell, {"user_config": user_config})
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
            await asyncio.to_thread(deployed.tell, {"delete": True})
            rest = [line async for line in lines]
        assert_whole(rest)


def assert_whole(lines: list[str]) -> None:
    *events, done = [line.removeprefix("data: ") for line in lines if line]
    assert done == "[DONE]"
    assert json.loads(events[-1])["choices"][0]["finish_reason"] == "length"
