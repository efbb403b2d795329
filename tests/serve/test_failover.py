"""A replica is killed under its answers, and clients of a router see nothing of it."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deployments.app import DEPLOYMENT_NAME
from tests.serve.conftest import START_S, eventually, is_ready
from tests.serve.serve_process import ServeProcess, command_line

REPLICA = f"ray::ServeReplica:paceline:{DEPLOYMENT_NAME}"
MAX_TOKENS = 1400
ASKED: list[dict[str, Any]] = [
    {"prompt": "The quick brown fox", "temperature": 0},
    {"prompt": "One two three,", "temperature": 1, "seed": 5, "n": 2},
    {"prompt": "Paceline drafts", "temperature": 1, "seed": 6, "frequency_penalty": 0.1},
    {"prompt": "- first\n- second", "temperature": 1, "seed": 7, "logprobs": 0},
]


@pytest.fixture
def served(
    tmp_path: Path, tiny_settings: dict[str, Any]
) -> Iterator[tuple[ServeProcess, list[int]]]:
    """With its two replicas' processes."""
    settings = {
        **tiny_settings,
        "resilient": True,
        "router": {"num_replicas": 1},
        "replicas": {**tiny_settings["replicas"], "num_replicas": 2},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        process = ServeProcess.start(tmp_path, settings)
    try:
        eventually(
            lambda: is_ready(process.url) or process.process.poll() is not None, "it is ready"
        )
        eventually(lambda: len(replicas_of(process)) == 2, "there are two replicas")
        yield process, replicas_of(process)
    finally:
        process.kill()


def replicas_of(served: ServeProcess) -> list[int]:
    """Their processes, once they are ready for calls. Ray adds to the title what runs in them."""
    found = []
    for pid in served.survivors():
        title = command_line(pid).decode(errors="replace").strip("\0 ")
        if title == REPLICA or (title.startswith(f"{REPLICA}.") and "__init__" not in title):
            found.append(pid)
    return found


def body(fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": MAX_TOKENS, "ignore_eos": True, **fields, **more}


Told = dict[int, tuple[str, str]]
"""By choice: its text and why it ended."""


async def whole(client: httpx.AsyncClient, fields: dict[str, Any]) -> Told:
    answer = await client.post("/v1/completions", json=body(fields))
    choices = answer.raise_for_status().json()["choices"]
    return {choice["index"]: (choice["text"], choice["finish_reason"]) for choice in choices}


async def streamed(
    client: httpx.AsyncClient, fields: dict[str, Any], has_begun: asyncio.Event
) -> Told:
    told: Told = {}
    usage = None
    asked = body(fields, stream=True, stream_options={"include_usage": True})
    async with client.stream("POST", "/v1/completions", json=asked) as answer:
        async for line in answer.aiter_lines():
            if not line or line == "data: [DONE]":
                continue
            chunk = json.loads(line.removeprefix("data: "))
            assert "error" not in chunk, chunk
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                has_begun.set()
                text, reason = told.get(choice["index"], ("", ""))
                told[choice["index"]] = (text + choice["text"], choice["finish_reason"] or reason)
    assert usage is not None
    assert usage["completion_tokens"] == MAX_TOKENS * len(told)
    return told


Streams = list[asyncio.Task[Told]]


async def under_way(client: httpx.AsyncClient, expected: list[Told]) -> Streams:
    """A stream for each of `ASKED`: all have begun, none has ended."""
    async with asyncio.timeout(START_S):
        while True:
            begun = [asyncio.Event() for _ in ASKED]
            streams = [
                asyncio.create_task(streamed(client, fields, event))
                for fields, event in zip(ASKED, begun, strict=True)
            ]
            await asyncio.gather(*(event.wait() for event in begun))
            if not any(task.done() for task in streams):
                return streams
            # One was so late, on a busy machine, that another had ended.
            assert await asyncio.gather(*streams) == expected


async def test_answers_outlive_the_replica_that_began_them(
    served: tuple[ServeProcess, list[int]],
) -> None:
    process, replicas = served
    async with httpx.AsyncClient(base_url=process.url, timeout=START_S) as client:
        expected = [await whole(client, fields) for fields in ASKED]
        assert all(reason == "length" for told in expected for _, reason in told.values())
        streams = await under_way(client, expected)
        answers = [asyncio.create_task(whole(client, fields)) for fields in ASKED]
        # Of these eight requests both replicas have some.
        os.kill(replicas[0], signal.SIGKILL)
        assert await asyncio.gather(*streams) == expected
        assert await asyncio.gather(*answers) == expected
        health = (await client.get("/health")).raise_for_status().json()
        assert health["engine"]["num_blocks"]
        described = (await client.put("/policy", json={"policy": "off"})).raise_for_status().json()
        assert described["table"]["mode"] == "off"
