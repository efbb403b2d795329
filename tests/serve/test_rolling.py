"""Changes while serving: settings without a restart, other replicas without a lost request, and a
stop that lets answers finish and refuses new ones."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.conftest import START_S, WAIT_S, a_new_home, eventually, free_port, is_ready
from tests.serve.serve_process import ROOT

LONG = {"model": "tiny", "prompt": "Once", "max_tokens": 600, "stream": True, "ignore_eos": True}
LOGS = "logs"
NUM_AFTER = 8
"""Answers of the new replica that are waited for."""


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
    settings["logs"] = {"format": "json", "folder": str(tmp_path / LOGS)}
    with a_new_home(tmp_path):
        one = Deployed(settings)
        try:
            one.tell({"user_config": {}})
            eventually(lambda: is_ready(one.url), "the application is ready")
            yield one
        finally:
            one.end()


@asynccontextmanager
async def asked_again_and_again(client: httpx.AsyncClient) -> AsyncIterator[list[httpx.Response]]:
    """Clients that ask from beginning to end; their answers, once all have come."""
    answers: list[httpx.Response] = []
    is_over = asyncio.Event()

    async def ask(body: dict[str, Any]) -> None:
        while not is_over.is_set():
            answers.append(await client.post("/v1/completions", json=body))

    async with asyncio.TaskGroup() as clients:
        for stream in (False, True, False, True):
            clients.create_task(ask({**LONG, "max_tokens": 20, "stream": stream}))
        try:
            yield answers
        finally:
            is_over.set()


async def test_changes_lose_no_request_and_a_stop_lets_answers_finish(
    deployed: Deployed, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann: first-key\n")
    keys.chmod(0o600)
    async with httpx.AsyncClient(base_url=deployed.url, timeout=START_S) as client:
        replica_id = (await client.get("/policy")).json()["replicas"][0]["replica_id"]
        known = {"x-request-id": "order-66"}
        async with client.stream("POST", "/v1/completions", json=LONG, headers=known) as answer:
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

        async with (
            asked_again_and_again(client) as answers,
            client.stream("POST", "/v1/completions", json=LONG) as answer,
        ):
            lines = answer.aiter_lines()
            await anext(lines)
            changed = {"args": {"served_model_name": "tiny", "limits": {"max_n": 2}}}
            await asyncio.to_thread(deployed.tell, {"user_config": user_config, **changed})
            rest = [line async for line in lines]
            async with asyncio.timeout(START_S):
                while replica_id in await replica_ids(client):
                    pass
            num_before = len(answers)
            async with asyncio.timeout(WAIT_S):
                while len(answers) < num_before + NUM_AFTER:
                    await client.get("/health")
        assert_whole(rest)
        assert {answer.status_code for answer in answers} == {200}
        for text in [answer.text for answer in answers]:
            if text.startswith("data: "):
                assert_whole(text.splitlines())
            else:
                assert json.loads(text)["choices"][0]["finish_reason"] == "length"

        async with client.stream("POST", "/v1/completions", json=LONG) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            await asyncio.to_thread(deployed.tell, {"delete": True})
            async with asyncio.timeout(WAIT_S):
                while (refused := await client.get("/v1/models")).status_code == 200:
                    pass
            rest = [line async for line in lines]
        assert_whole(rest)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "unavailable"
        assert_logged(tmp_path / LOGS)


async def replica_ids(client: httpx.AsyncClient) -> set[str]:
    """Of those that the policy actor knows which answers now: a roll-out brings its own."""
    described = (await client.get("/policy")).json()
    return {replica["replica_id"] for replica in described["replicas"]}


def assert_whole(lines: list[str]) -> None:
    *events, done = [line.removeprefix("data: ") for line in lines if line]
    assert done == "[DONE]"
    assert json.loads(events[-1])["choices"][0]["finish_reason"] == "length"


def assert_logged(folder: Path) -> None:
    """Of the replicas, in JSON: the answer that has an id of its own, and the change of table."""
    logs = [path.read_text() for path in folder.glob("replica_*.log")]
    lines = [json.loads(line) for text in logs for line in text.splitlines()]
    (told,) = [line for line in lines if line.get("request_id") == "order-66"]
    assert (told["event"], told["outcome"], told["new_tokens"]) == ("request", "finished", 600)
    assert told["seconds"] > told["first_token_s"] > 0
    tables = [line for line in lines if line.get("event") == "table"]
    assert "set by hand: fixed" in [line["why"] for line in tables]
    assert all("paceline" in line["deployment"] and line["replica"] for line in (told, *tables))
