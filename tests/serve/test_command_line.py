"""`paceline serve` as a process of its own: it comes up, says so, and leaves nothing behind."""

import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.conftest import WAIT_S, eventually
from tests.serve.serve_process import ServeProcess, command_line

MANY_TOKENS = 1500


@pytest.fixture
def serve(tmp_path: Path, tiny_settings: dict[str, Any]) -> Iterator[Any]:
    started: list[ServeProcess] = []

    def start(**settings: Any) -> ServeProcess:
        started.append(ServeProcess.start(tmp_path, {**tiny_settings, **settings}))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def patient(tiny_settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of replicas that end only after their requests."""
    return {**tiny_settings["replicas"], "graceful_shutdown_timeout_s": WAIT_S}


def assert_a_stream_ends_and_nothing_is_left(
    running: ServeProcess, model: str, interrupt: Callable[[], None]
) -> None:
    """Once interrupted amid an answer, it gives the whole answer and goes without a fault."""
    body = {"model": model, "prompt": "Once", "max_tokens": MANY_TOKENS, "stream": True}
    with httpx.stream("POST", f"{running.url}/v1/completions", json=body, timeout=WAIT_S) as answer:
        lines = (line for line in answer.iter_lines() if line)
        next(lines)
        interrupt()
        eventually(lambda: running.has_said("Stopping; requests in flight may finish"), "it stops")
        *_, last, done = lines
    assert done == "data: [DONE]"
    choice = json.loads(last.removeprefix("data: "))["choices"][0]
    assert choice["finish_reason"] == "length"
    assert running.exit_code() == 0, running.log.read_text()
    assert "Traceback" not in running.log.read_text()
    eventually(lambda: running.survivors() == [], "no process is left")


def test_it_comes_up_answers_and_goes_at_one_ctrl_c(serve: Any, patient: dict[str, Any]) -> None:
    running: ServeProcess = serve(served_model_name="my model's name", replicas=patient)
    eventually(lambda: running.has_said("curl .*\n"), "it is ready")
    ready = running.says(r"Ready after \d+ s: (http\S+) serves my model's name, policy fixed 2")
    assert ready, running.log.read_text()
    assert ready[1] == f"http://127.0.0.1:{running.port}"
    sample = running.says(r"curl (.*)\n")
    assert sample
    url, *_, body = shlex.split(sample[1])
    answer = httpx.post(url, json={**json.loads(body), "max_tokens": 4}, timeout=WAIT_S)
    assert answer.json()["usage"]["completion_tokens"] == 4

    assert_a_stream_ends_and_nothing_is_left(
        running,
        "my model's name",
        # As a terminal does it: to all processes of the group.
        lambda: os.killpg(running.process.pid, signal.SIGINT),
    )


def test_the_death_of_the_proxy_is_told_and_it_goes_at_a_signal_to_it_alone(
    serve: Any, patient: dict[str, Any]
) -> None:
    running: ServeProcess = serve(replicas=patient)
    eventually(lambda: running.has_said("Ready after"), "it is ready")
    (proxy,) = [pid for pid in running.survivors() if b"ProxyActor" in command_line(pid)]
    # Serve starts another one as soon as it misses this one: stopped, it is only silent.
    os.kill(proxy, signal.SIGSTOP)
    eventually(lambda: running.has_said("Not healthy: the HTTP endpoint .* does not answer"), "it")
    os.kill(proxy, signal.SIGCONT)
    eventually(lambda: running.has_said("Healthy again"), "it is healthy")
    assert running.process.poll() is None, running.log.read_text()
    assert_a_stream_ends_and_nothing_is_left(
        running, "tiny", lambda: os.kill(running.process.pid, signal.SIGINT)
    )


@pytest.mark.parametrize(
    ("stage", "stop"),
    [("starting Ray", signal.SIGINT), ("starting Serve", signal.SIGTERM)],
)
def test_a_stop_while_it_loads_leaves_nothing(serve: Any, stage: str, stop: signal.Signals) -> None:
    loading: ServeProcess = serve()
    eventually(lambda: loading.has_said(stage), stage)
    os.killpg(loading.process.pid, stop)
    assert loading.exit_code() == 130, loading.log.read_text()
    assert "Traceback" not in loading.log.read_text()
    eventually(lambda: loading.survivors() == [], "no process is left")


def test_weights_that_do_not_load_end_it_with_the_cause(
    serve: Any, tiny_model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in tiny_model.iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(
            content[:1000] if file.suffix == ".safetensors" else content
        )
    failing: ServeProcess = serve(model=str(broken))
    assert failing.exit_code() == 2, failing.log.read_text()
    last = failing.log.read_text().splitlines()[-1]
    assert last.startswith("paceline: error: ")
    assert "broken" in last
    assert "Traceback" not in failing.log.read_text()
    eventually(lambda: failing.survivors() == [], "no process is left")
