"""A replica whose engine is full: refusals in OpenAI's format, and control routes that answer."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from tests.serve.conftest import CONTEXT_TOKENS, WAIT_S, eventually
from tests.serve.serve_process import ServeProcess

NUM_RUNNING = 2
NUM_WAITING = 260
NUM_TOO_MANY = 100
"""More than the requests that a replica takes besides those of its engine."""
NUM_SURELY_REFUSED = 80
"""The others may take the places of requests that have ended meanwhile."""

NUM_CROWD = 1280
HEALTH_S = 10.0
"""Whoever asks whether a replica is alive waits no longer."""

BODY = {"model": "tiny", "prompt": "Once", "max_tokens": CONTEXT_TOKENS, "stream": True}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, tiny_settings: dict[str, Any]) -> Iterator[str]:
    limits = {"max_num_seqs": NUM_RUNNING, "max_num_waiting": NUM_WAITING}
    settings = {**tiny_settings, "engine": {**tiny_settings["engine"], **limits}}
    running = ServeProcess.start(tmp_path_factory.mktemp("overload"), settings)
    try:
        eventually(lambda: running.has_said("Ready after"), "it is ready")
        yield running.url
    finally:
        running.kill()


def test_a_crowd_at_once_is_answered_and_the_replica_lives(url: str) -> None:
    asyncio.run(crowd(url))


async def crowd(url: str) -> None:
    """Every one is answered or told when to come again, and /health answers meanwhile."""
    unlimited = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_S, limits=unlimited) as client:

        async def ask() -> httpx.Response:
            return await client.post("/v1/completions", json={**BODY, "max_tokens": 4})

        before = (await client.get("/policy")).json()
        tasks = [asyncio.create_task(ask()) for _ in range(NUM_CROWD)]
        while not all(task.done() for task in tasks):
            (await client.get("/health", timeout=HEALTH_S)).raise_for_status()
        answers = [task.result() for task in tasks]
        for answer in answers:
            assert answer.status_code in (200, 503)
            if answer.status_code == 503:
                assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert sum(answer.status_code == 200 for answer in answers) >= NUM_WAITING
        after = (await client.get("/policy")).json()
        assert replica_ids(after) == replica_ids(before)


def replica_ids(described: dict[str, Any]) -> list[str]:
    return [replica["replica_id"] for replica in described["replicas"]]


def test_a_full_engine_refuses_and_still_answers_about_itself(url: str) -> None:
    asyncio.run(overload(url))


async def overload(url: str) -> None:
    unlimited = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_S, limits=unlimited) as client:

        async def ask() -> httpx.Response:
            return await client.post("/v1/completions", json=BODY)

        async def num_in_flight() -> int:
            engine = (await client.get("/health")).raise_for_status().json()["engine"]
            return int(engine["num_running"]) + int(engine["num_waiting"])

        tasks = [asyncio.create_task(ask()) for _ in range(NUM_RUNNING + NUM_WAITING)]
        async with asyncio.timeout(WAIT_S):
            while await num_in_flight() < NUM_RUNNING + NUM_WAITING:
                pass  # each question waits for its answer
        burst = [asyncio.create_task(ask()) for _ in range(NUM_TOO_MANY)]
        (await client.get("/health")).raise_for_status()
        (await client.get("/v1/models")).raise_for_status()
        (await client.put("/policy", json={"policy": "off"})).raise_for_status()
        for answered in islice(asyncio.as_completed(burst), NUM_SURELY_REFUSED):
            answer = await answered
            assert answer.status_code == 503
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
            assert answer.json()["error"]["code"] == "engine_full"
        for task in (*tasks, *burst):
            task.cancel()
        await asyncio.gather(*tasks, *burst, return_exceptions=True)
