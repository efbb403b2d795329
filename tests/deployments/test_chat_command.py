"""`paceline chat` against a scripted server on the loopback."""

import asyncio
import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import typer
import uvicorn
from typer.testing import CliRunner

from deployments.api import create_api
from deployments.commands.chat import chat
from deployments.service import GenerationService
from engine.errors import ConfigError, EngineFull
from engine.request import FinishReason
from tests.deployments.fake_loop import FakeLoop, Step
from tests.tiny_tokenizer import byte_level_tokenizer


@contextmanager
def server(steps: list[Step]) -> Iterator[tuple[str, FakeLoop]]:
    """A real server in a thread of its own, as the command blocks."""
    tokenizer = byte_level_tokenizer()
    loop = FakeLoop(steps)
    service = GenerationService(
        loop, tokenizer, "tiny", max_model_len=512, vocab_size=len(tokenizer)
    )
    app = create_api(lambda: service, lambda: pytest.fail("no policy here"))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        serving = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
        thread = threading.Thread(target=lambda: asyncio.run(serving.serve(sockets=[bound])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}", loop
        finally:
            serving.should_exit = True
            thread.join()


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(chat)
    return app


def answer(text: str) -> list[Step]:
    tokenizer = byte_level_tokenizer()
    encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*((token_id,) for token_id in encoded), (1,), FinishReason.STOP]


def prompts(loop: FakeLoop) -> list[str]:
    tokenizer = byte_level_tokenizer()
    return [str(tokenizer.decode(list(r.prompt_token_ids))) for r in loop.requests]


def test_every_line_of_a_pipe_is_one_message(command: typer.Typer) -> None:
    with server(answer("Héllo 🙂")) as (url, loop):
        arguments = ["--url", url, "--system", "Be brief.", "--temperature", "0"]
        result = CliRunner().invoke(
            command, [*arguments, "--max-tokens", "50"], input="one\n\ntwo\n/reset\nthree\n/exit\nx"
        )
    assert result.exit_code == 0, result.output
    assert result.stdout == "Héllo 🙂\n" * 3
    start = "<|bos|><|system|>Be brief.<|end|><|user|>"
    assert prompts(loop) == [
        f"{start}one<|end|><|assistant|>",
        f"{start}one<|end|><|assistant|>Héllo 🙂<|end|><|user|>two<|end|><|assistant|>",
        f"{start}three<|end|><|assistant|>",
    ]
    assert {(r.sampling.temperature, r.sampling.max_tokens) for r in loop.requests} == {(0.0, 50)}


def test_a_refused_message_is_one_line_and_a_failure(command: typer.Typer) -> None:
    with server([EngineFull("too many requests wait")]) as (url, _):
        result = CliRunner().invoke(command, ["--url", url], input="one\n")
    assert result.exit_code == 1
    assert result.stderr == "paceline: error: too many requests wait\n"


def test_an_answer_that_breaks_off(command: typer.Typer) -> None:
    with server([*answer("ab")[:1], ZeroDivisionError()]) as (url, _):
        result = CliRunner().invoke(command, ["--url", url], input="one\n")
    assert result.exit_code == 1
    assert result.stdout == "a\n"
    assert result.stderr == "paceline: error: the server failed on this request\n"


def test_no_server_there(command: typer.Typer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = CliRunner().invoke(command, ["--url", url], input="one\n")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"no Paceline server at {url}: ")


@pytest.mark.parametrize("url", ["nowhere", "http://127.0.0.1:99999", "http://[::", "ftp://x"])
def test_a_url_that_is_none(command: typer.Typer, url: str) -> None:
    result = CliRunner().invoke(command, ["--url", url], input="one\n")
    assert isinstance(result.exception, ConfigError)
    assert "\n" not in str(result.exception)


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(
    command: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedAfterA(io.StringIO):
        def write(self, text: str) -> int:
            written = super().write(text)
            if text == "a":
                raise KeyboardInterrupt
            return written

    with server([*answer("ab")[:1], asyncio.Event()]) as (url, loop):
        printed = InterruptedAfterA()
        real_print = print

        def print_there(*values: Any, **options: Any) -> None:
            real_print(*values, **{"file": printed, **options})

        monkeypatch.setattr("builtins.print", print_there)
        result = CliRunner().invoke(command, ["--url", url], input="one\n/exit\n")
    assert result.exit_code == 0, result.output
    assert printed.getvalue() == "a [stopped]\n"
    assert loop.num_open == 0
