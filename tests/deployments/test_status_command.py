"""`paceline status` against a stub that answers GET /policy."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from deployments.cli import app
from engine.errors import ConfigError
from policy.board import PolicyBoard
from policy.choice import parse_choice
from policy.stats import Occupancy, StatsWindow


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        body = json.dumps(self.server.board.describe() | self.server.more).encode()
        self.send_response(503 if self.server.is_gone else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.board = PolicyBoard(parse_choice({"table": {"1": 5, "8": 2}}), 8, lambda: 1e9)
        self.more: dict[str, Any] = {}
        self.is_gone = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as stub:
        thread = threading.Thread(target=stub.serve_forever)
        thread.start()
        yield stub
        stub.shutdown()
        thread.join()


def report(board: PolicyBoard) -> None:
    busy = Occupancy(running=4, waiting=7, decoding=3, draft_len=2, kv_use=0.25)
    window = StatsWindow(table_version=1, occupancy=busy, wall_seconds=2.0, steps=9)
    window.record_rounds(num_drafted=4, num_accepted=3, num_emitted=41)
    board.note_stage("h3k9x2ab", "ready")
    board.observe("h3k9x2ab", window)
    board.note_stage("loading1", "importing torch")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["status", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def row_of(shown: str, replica_id: str) -> list[str]:
    (row,) = [line.split() for line in shown.splitlines() if replica_id in line]
    return row


def test_each_replica_has_a_row(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    report(server.board)
    shown = run("--url", server.url)
    assert "1 of 2 replicas ready, 20.5 tokens/s, 7 waiting" in shown
    assert "policy table, version 1 (1:5,8:2)" in shown
    assert row_of(shown, "h3k9x2ab")[1:] == ["ready", "20.5", "3", "7", "2", "75%", "25%", "v1"]
    assert "importing torch" in shown


def test_a_replica_that_is_silent_is_no_longer_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    report(server.board)
    (dead, _) = replicas = server.board.describe()["replicas"]
    assert dead["replica_id"] == "h3k9x2ab"
    for is_silent, state, total in (
        (False, "ready", "1 of 2 replicas ready, 20.5 tokens/s, 7 waiting"),
        (True, "silent", "0 of 2 replicas ready, 0.0 tokens/s, 0 waiting"),
    ):
        dead["is_silent"] = is_silent
        server.more = {"replicas": replicas}
        shown = run("--url", server.url)
        assert total in shown
        assert row_of(shown, "h3k9x2ab")[1] == state


def test_markup_in_what_a_replica_says_is_text(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    server.board.note_stage("h3k9x2ab", "failed: [bold]no [/x] such file")
    assert "failed: [bold]no [/x] such file" in run("--url", server.url)


def test_without_the_actor_a_replica_tells_what_it_knows(server: Server) -> None:
    server.more = {
        "replicas": [
            {"replica_id": "a", "version_in_force": 4, "seen_s_ago": 0.0, "stage": "ready"}
        ],
        "policy_actor": {"reachable": False, "heard_s_ago": 12.0},
    }
    shown = run("--url", server.url)
    assert "being restarted (last heard from 12 s ago)" in " ".join(shown.split())
    assert row_of(shown, "v4")[-1] == "v4"


def test_json_is_what_the_server_said(server: Server) -> None:
    report(server.board)
    assert json.loads(run("--url", server.url, "--json")) == server.board.describe()


def test_watching_looks_again_until_interrupted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def pause(_: float) -> None:
        nonlocal looks
        looks += 1
        server.board.set_by_hand(parse_choice({"fixed": looks}))
        if looks == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("deployments.commands.status.time.sleep", pause)
    monkeypatch.setenv("COLUMNS", "120")
    result = CliRunner().invoke(app, ["status", "--url", server.url, "--watch", "--json"])
    versions = [json.loads(line)["table"]["version"] for line in result.output.splitlines()]
    assert versions == [1, 2, 3]
    looks = 0
    shown = CliRunner().invoke(app, ["status", "--url", server.url, "--watch"]).output
    assert "fixed 2" in shown


@pytest.mark.parametrize("form", [["--json"], []])
def test_watching_outlives_a_server_that_is_gone_for_a_while(
    server: Server, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    looks = 0

    def pause(_: float) -> None:
        nonlocal looks
        looks += 1
        server.is_gone = looks == 1
        server.board.set_by_hand(parse_choice({"fixed": looks}))
        if looks == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("deployments.commands.status.time.sleep", pause)
    monkeypatch.setenv("COLUMNS", "120")
    result = CliRunner().invoke(app, ["status", "--url", server.url, "--watch", *form])
    assert looks == 3
    if form:
        lines = result.stdout.splitlines()
        assert [json.loads(line)["table"]["version"] for line in lines] == [1, 3]
        assert "asking again" in result.stderr
    else:
        assert "fixed 2" in result.output


def test_nobody_there_is_one_error() -> None:
    with pytest.raises(ConfigError, match="--url: no answer from"):
        CliRunner().invoke(app, ["status", "--url", "http://127.0.0.1:9"], catch_exceptions=False)
