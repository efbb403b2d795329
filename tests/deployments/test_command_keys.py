"""The commands and a server that asks for keys: the right one from wherever it comes, and one clear
line for a wrong one."""

import asyncio
import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments import cli
from deployments.api_keys import KEYS_VARIABLE, KeyRing
from tests.deployments.api_app import App, tokens
from tests.tiny_tokenizer import byte_level_tokenizer

KEY, OTHER = "sk-right", "sk-of-another-place"
ASKING = [
    ["chat"],
    ["policy", "show"],
    ["policy", "set", "off"],
    ["policy", "explain", "--batch-size", "3"],
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A real server in a thread of its own, as the commands block."""
    tokenizer = byte_level_tokenizer()
    steps = tokens(tokenizer, "ok")
    app = App(tokenizer, steps, max_model_len=512, keys=KeyRing(None, {KEYS_VARIABLE: KEY}))
    found: list[str] = []
    is_up, is_over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with app.served() as address:
            found.append(address)
            loops.append(asyncio.get_running_loop())
            is_up.set()
            await is_over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    is_up.wait()
    yield found[0]
    loops[0].call_soon_threadsafe(is_over.set)
    thread.join()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """`paceline` with these arguments, and a line for it to read; its exit code."""
    monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("given", [[], ["--api-key", OTHER]], ids=["none", "a wrong one"])
@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_without_the_right_key_there_is_one_line(
    command: list[str],
    given: list[str],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PACELINE_API_KEY", raising=False)
    assert run(monkeypatch, *command, "--url", url, *given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("paceline: error: ")
    assert url in line
    assert "API key" in line
    assert OTHER not in line


@pytest.mark.parametrize("source", ["flag", "environment"])
def test_the_right_key_opens(
    source: str, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACELINE_API_KEY", KEY if source == "environment" else OTHER)
    given = ["--api-key", KEY] if source == "flag" else []
    assert run(monkeypatch, "policy", "explain", "--batch-size", "3", "--url", url, *given) == 0
    assert "at batch 3" in capsys.readouterr().out
    assert run(monkeypatch, "chat", "--url", url, *given) == 0
    assert capsys.readouterr().out == "ok\n"


def test_a_key_that_no_header_can_carry_is_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "policy", "show", "--url", url, "--api-key", "s e c r e t") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--api-key must be printable ASCII" in line
    assert "s e c" not in line


@pytest.mark.parametrize(
    ("mode", "content", "says"),
    [(0o644, "a-key\n", "chmod 600"), (0o600, "# none\n", "holds no key"), (None, "", "No such")],
    ids=["open to all", "empty", "missing"],
)
def test_serve_refuses_a_bad_file_of_keys_before_it_starts_anything(
    mode: int | None,
    content: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("deployments.launcher.Launcher.start_ray", lambda _: pytest.fail("started"))
    monkeypatch.setattr("deployments.ports.require_free_port", lambda _: None)
    keys, config = tmp_path / "keys", tmp_path / "app.yaml"
    if mode is not None:
        keys.write_text(content)
        keys.chmod(mode)
    config.write_text(f"server: {{api_keys_file: {keys}}}\n")
    assert run(monkeypatch, "serve", str(config)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(keys) in line
    assert says in line
