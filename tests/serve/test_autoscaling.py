"""Replicas come under load, through real Serve. That they go again takes minutes, and is tried on
a virtual clock alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.conftest import WAIT_S, eventually
from tests.serve.serve_process import ServeProcess

NUM_CLIENTS = 6
NUM_ASKED = 24
"""Answers of which at least one is of each of two replicas, but for a chance of one in millions."""


@pytest.fixture
def url(tmp_path: Path, tiny_settings: dict[str, Any]) -> Iterator[str]:
    autoscaling = {
        "max_replicas": 2,
        # Nobody can meet it: a sequence at a time is the best batch, and half a dozen too many.
        "target_tpot_ms": 0.001,
        "upscale_delay_s": 0.5,
        "downscale_delay_s": 5.0,
    }
    running = ServeProcess.start(tmp_path, {**tiny_settings, "autoscaling": autoscaling})
    try:
        eventually(lambda: running.has_said("Ready after"), "it is ready")
        yield running.url
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


def num_ready(url: str) -> int:
    """Replicas that were ever ready, by the policy actor's records."""
    records = httpx.get(f"{url}/policy", timeout=WAIT_S).json()["replicas"]
    return sum(record["stage"] == "ready" for record in records)


def num_answering(url: str) -> int:
    """Idle replicas, told apart by the steps that they have made."""
    answers = [httpx.get(f"{url}/health", timeout=WAIT_S).json() for _ in range(NUM_ASKED)]
    return len({answer["engine"]["steps"] for answer in answers})


def test_one_becomes_two_under_load(url: str) -> None:
    assert num_ready(url) == 1
    with load(url):
        eventually(lambda: num_ready(url) == 2, "there are two replicas")
    eventually(lambda: num_answering(url) == 2, "both answer")
