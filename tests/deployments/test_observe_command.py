"""`paceline observe`: what it asks the application, what it writes, what it starts."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cluster.metrics.prometheus import CONFIG_FILE, KEY_FILE, RULE_FILE, TARGETS_PATH, command
from deployments.cli import app
from engine.errors import ConfigError

TARGETS = [{"targets": ["10.0.0.1:8080"], "labels": {}}]


class Stub(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.body: object = TARGETS
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        body = json.dumps(self.server.body).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def observe(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["observe", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def written(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((folder / CONFIG_FILE).read_text())
    return config


def test_the_configuration_sends_prometheus_to_the_application(stub: Stub, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    output = observe("--url", f"{stub.url}/", "--folder", str(folder), "--write-only")
    assert str(folder / CONFIG_FILE) in output
    assert stub.asked == [(TARGETS_PATH, None)]
    (job,) = written(folder)["scrape_configs"]
    (discovery,) = job["http_sd_configs"]
    assert discovery["url"] == f"{stub.url}{TARGETS_PATH}"
    assert "authorization" not in discovery
    assert (folder / RULE_FILE).is_file()
    assert not (folder / KEY_FILE).exists()


def test_a_key_is_kept_for_prometheus_and_for_nobody_else(stub: Stub, tmp_path: Path) -> None:
    arguments = ["--url", stub.url, "--folder", str(tmp_path), "--write-only"]
    observe(*arguments, "--api-key", "secret")
    assert stub.asked == [(TARGETS_PATH, "Bearer secret")]
    (discovery,) = written(tmp_path)["scrape_configs"][0]["http_sd_configs"]
    assert discovery["authorization"]["credentials_file"] == KEY_FILE
    assert (tmp_path / KEY_FILE).read_text() == "secret"
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o077 == 0
    assert "secret" not in (tmp_path / CONFIG_FILE).read_text()


def test_prometheus_takes_our_place(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr("os.execvp", lambda program, line: started.append((program, line)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    output = observe(
        *("--url", stub.url, "--folder", str(tmp_path)),
        *("--port", str(port), "--prometheus", "/opt/prometheus"),
    )
    ((program, line),) = started
    assert program == line[0] == "/opt/prometheus"
    assert f"--config.file={tmp_path / CONFIG_FILE}" in line
    assert f"--web.listen-address=127.0.0.1:{port}" in line
    assert f"http://127.0.0.1:{port} watches 10.0.0.1:8080" in output


def test_another_that_runs_keeps_its_folder(stub: Stub, tmp_path: Path) -> None:
    observe("--url", stub.url, "--folder", str(tmp_path), "--api-key", "first", "--write-only")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(ConfigError, match="--port"):
            observe(
                *("--url", stub.url, "--folder", str(tmp_path), "--api-key", "second"),
                *("--port", port, "--prometheus", "/opt/prometheus"),
            )
    assert (tmp_path / KEY_FILE).read_text() == "first"


def test_an_address_of_version_six_stands_in_brackets() -> None:
    assert "--web.listen-address=[::1]:9090" in command("prometheus", Path("/x"), "::1", 9090)


def test_a_program_that_is_not_there_is_one_line(stub: Stub, tmp_path: Path) -> None:
    arguments = ["--url", stub.url, "--folder", str(tmp_path)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        arguments += ["--port", str(probe.getsockname()[1])]
    with pytest.raises(ConfigError, match=r"--prometheus: can't start '/none': No such file"):
        observe(*arguments, "--prometheus", "/none")


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, {"error": {}}, "--api-key: .* wants another one"),
        (404, {"detail": "Not Found"}, "answered 404 and no addresses; is it Paceline"),
        (200, [{"targets": []}], "Ray exports no metrics"),
    ],
)
def test_an_application_that_does_not_tell(
    stub: Stub, tmp_path: Path, status: int, body: object, says: str
) -> None:
    stub.status, stub.body = status, body
    with pytest.raises(ConfigError, match=says):
        observe("--url", stub.url, "--folder", str(tmp_path), "--write-only")
    assert list(tmp_path.iterdir()) == []


def test_an_application_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"--url: no answer from {url}"):
            observe("--url", url, "--folder", str(tmp_path), "--write-only")
