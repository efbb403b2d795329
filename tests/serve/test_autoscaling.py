"""Replicas come when they are needed, the first of them too, through real Serve. That they go after
they had work takes minutes, and is tried on a virtual clock alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.conftest import START_S, WAIT_S, eventually
from tests.serve.serve_process import ServeProcess, command_line

NUM_CLIENTS = 6
NUM_ASKED = 24
"""Answers of which at least one is of each of two replicas, but for a chance of one in millions."""


@pytest.fixture
def running(tmp_path: Path, tiny_settings: dict[str, Any]) -> Iterator[ServeProcess]:
    autoscaling = {
        "min_replicas": 0,
        "max_replicas": 2,
        # Nobody can meet it: a sequence at a time is the best batch, and half a dozen too many.
        "target_tpot_ms": 0.001,
        "upscale_delay_s": 0.5,
        "downscale_delay_s": 5.0,
    }
    running = ServeProcess.start(tmp_path, {**tiny_settings, "autoscaling": autoscaling})
    try:
        eventually(lambda: running.has_said("Ready after"), "it is ready")
        yield running
    finally:
        running.kill()


@contextmanager
def load(url: str) -> Iterator[None]:
    """Clients that ask again and again."""
    is_over = threading.Event()

    def ask() -> None:
        body = {"model": "tiny", "prompt": "Once", "max_tokens": 200, "ignore_eos": True}
        while not is_over.is_set():
            httpx.post(f"{url}/v1/completions", json=body, timeout=WAIT_S)

    clients = [threading.Thread(target=ask) for _ in range(NUM_CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        is_over.set()
        for client in clients:
            client.join()


def num_replicas(running: ServeProcess) -> int:
    """Those that start included, and nobody is asked: a request to any route would wake one."""
    return sum(b"ServeReplica:" in command_line(pid) for pid in running.survivors())


def num_answering(url: str) -> int:
    """Idle replicas, told apart by the steps that they have made."""
    answers = [httpx.get(f"{url}/health", timeout=WAIT_S).json() for _ in range(NUM_ASKED)]
    return len({answer["engine"]["steps"] for answer in answers})


def test_none_becomes_one_at_a_request_and_two_under_load(running: ServeProcess) -> None:
    eventually(lambda: num_replicas(running) == 0, "the one that started has nothing to do")
    body = {"model": "tiny", "prompt": "Once", "max_tokens": 5, "ignore_eos": True}
    answer = httpx.post(f"{running.url}/v1/completions", json=body, timeout=START_S)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 5
    assert num_replicas(running) == 1
    with load(running.url):
        eventually(lambda: num_replicas(running) == 2, "there are two replicas")
    eventually(lambda: num_answering(running.url) == 2, "both answer")
    assert not running.says("Not healthy"), running.log.read_text()
