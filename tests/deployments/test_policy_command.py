"""`paceline policy` against a stub that answers like the application."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deployments.commands.policy import policy_app, read_policy
from deployments.commands.policy_answers import in_force_everywhere
from engine.errors import ConfigError
from policy.board import Introduction, PolicyBoard
from policy.choice import parse_choice
from policy.stats import StatsWindow
from tests.policy.grids import grid


class StubServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StubHandler)
        self.board = PolicyBoard(parse_choice({"table": {"1": 5, "8": 2}}), 8, lambda: 1e9)
        self.board.observe("h3k9x2ab", _some_stats())
        self.answer: tuple[int, bytes] | None = None
        self.asked: list[str] = []
        self.more: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class StubHandler(BaseHTTPRequestHandler):
    server: StubServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path == "/policy/explain":
            self._send(200, json.dumps({"kinds": [self.server.board.explain_table()]}).encode())
            return
        if self.path.startswith("/policy/explain"):
            self._send(200, json.dumps({"text": "at batch 8 length 2: [1.31]"}).encode())
            return
        self._describe()
        # Reported after the answer: the replica takes a table over a little later.
        version = self.server.board.published.table.version
        self.server.board.observe("h3k9x2ab", StatsWindow(table_version=version))

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.board.set_by_hand(parse_choice(body["policy"]))
        self._describe()

    def _describe(self) -> None:
        described = self.server.board.describe() | self.server.more
        self._send(200, json.dumps(described).encode())

    def _send(self, status: int, body: bytes) -> None:
        status, body = self.server.answer or (status, body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _some_stats() -> StatsWindow:
    window = StatsWindow(table_version=1, steps=7)
    window.record_rounds(num_drafted=4, num_accepted=3, num_emitted=4)
    return window


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        thread = threading.Thread(target=stub.serve_forever)
        thread.start()
        yield stub
        stub.shutdown()
        thread.join()


def run(*arguments: str) -> str:
    result = CliRunner().invoke(policy_app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_show_tells_table_and_replicas(server: StubServer) -> None:
    shown = run("show", "--url", server.url)
    for expected in (
        "Policy table, version 1, from the configuration",
        "2 to 8",
        "9 or more",
        "h3k9x2ab",
        "version 1",
        "3 (75%)",
    ):
        assert expected in shown


def test_set_changes_the_table(server: StubServer) -> None:
    assert "any" in run("set", "fixed", "4", "--url", server.url)
    assert server.board.describe()["table"]["mode"] == "fixed"
    shown = run("set", "table", "1:5,4:3,16:1", "--url", f"{server.url}/")
    assert server.board.published.table.rungs == ((1, 5), (4, 3), (16, 1))
    assert "version 3, set by hand" in shown
    assert shown.count("version 3") == 2, "the replica's version is the one that was set"
    assert "any" in run("set", "off", "--url", server.url)
    assert server.board.describe()["table"]["mode"] == "off"
    shown = run("set", "adaptive", "--url", server.url)
    assert server.board.describe()["table"]["mode"] == "adaptive"
    assert "Policy adaptive" in shown
    assert "Last change: set by hand: adaptive" in shown


def test_each_kind_of_replica_is_shown_with_its_own_table_and_reason(server: StubServer) -> None:
    server.more = {"kinds": [_kind("cpu of 2", 3, [[2, 4]]), _kind("gpu", 7, [[64, 6]])]}
    shown = run("show", "--url", server.url)
    cpu, gpu = shown[: shown.index("Replicas on gpu")], shown[shown.index("Replicas on gpu") :]
    assert "Replicas on cpu of 2:" in cpu
    for part, version, sizes in ((cpu, 3, "1 to 2"), (gpu, 7, "1 to 64")):
        assert f"Policy adaptive, version {version}, measured" in part
        assert f"Last change: batch 1: 2 -> {version} [dim]" in part
        assert sizes in part
    assert "h3k9x2ab" in gpu
    told = run("history", "--url", server.url)
    assert "batch 1: 2 -> 3 [dim]" in told
    assert told.index("Replicas on gpu") < told.index("batch 1: 2 -> 7 [dim]")


def test_a_table_is_awaited_on_the_replicas_of_its_kind_alone(server: StubServer) -> None:
    described = server.board.describe() | {"kinds": [_kind("cpu", 3, []), _kind("gpu", 7, [])]}
    for kind, version, in_force in (("cpu", 3, True), ("gpu", 3, False), ("gpu", 7, True)):
        described["replicas"] = [{"kind": kind, "version_in_force": version}]
        assert in_force_everywhere(described) is in_force


def test_history_tells_each_table_with_its_reason(server: StubServer) -> None:
    server.board.set_by_hand(parse_choice({"fixed": 4}))
    server.board.set_by_hand(parse_choice("off"))
    lines = run("history", "--url", server.url).splitlines()
    for version, lengths, why in (
        ("1", "1:5,8:2", "configuration"),
        ("2", "fixed 4", "set by hand: fixed"),
        ("3", "off", "set by hand: off"),
    ):
        line = next(line for line in lines if line.strip().startswith(version))
        assert lengths in line
        assert why in line


def test_without_the_actor_there_is_no_history(server: StubServer) -> None:
    server.more = {"history": []}
    assert "Nothing is known" in run("history", "--url", server.url)


def test_explain_asks_for_the_batch_size_and_prints_the_words(server: StubServer) -> None:
    told = run("explain", "--batch-size", "8", "--url", server.url)
    assert told == "at batch 8 length 2: [1.31]\n"
    assert server.asked == ["/policy/explain?batch_size=8"]
    assert CliRunner().invoke(policy_app, ["explain", "--batch-size", "0"]).exit_code == 2


def test_explain_tells_of_each_rung_what_it_gains_and_why(server: StubServer) -> None:
    introduction = Introduction("k", "a machine", 16, 4, calibration=grid())
    server.board.introduce("h3k9x2ab", introduction)
    told = run("explain", "--url", server.url)
    assert "Policy table, version 1, from the configuration" in told
    rows = {line[:14].strip(): line.split() for line in told.splitlines()}
    assert rows["2 to 8"][3] == "2"
    assert rows["2 to 8"][-1].endswith("%")
    assert rows["9 or more"][3] == "0"
    assert not rows["9 or more"][-1].endswith("%"), "no drafts gain nothing"
    assert "2 to 8: at batch 8 length 2: " in told


def test_explain_without_measured_cost_says_so(server: StubServer) -> None:
    told = run("explain", "--url", server.url)
    assert "2 to 8: no cost was measured yet" in told
    assert "%" not in told


def test_export_writes_what_the_other_engine_reads(server: StubServer, tmp_path: Path) -> None:
    out = tmp_path / "spec.json"
    flags = ("--format", "vllm", "--max-batch-size", "32", "--url", server.url)
    result = CliRunner().invoke(policy_app, ["export", *flags], catch_exceptions=False)
    ranges = json.loads(result.stdout)["num_speculative_tokens_per_batch_size"]
    assert ranges == [[1, 1, 5], [2, 8, 2], [9, 32, 0]]
    assert "--speculative-config" in result.stderr
    result = CliRunner().invoke(policy_app, ["export", *flags, "--out", str(out)])
    assert result.stdout == ""
    assert json.loads(out.read_text())["num_speculative_tokens"] == 5
    with pytest.raises(ConfigError, match=r"--out: can't write .*nowhere"):
        run("export", *flags, "--out", str(tmp_path / "nowhere" / "spec.json"))
    assert CliRunner().invoke(policy_app, ["export", "--format", "triton"]).exit_code == 2


def test_export_wants_to_know_which_kind(server: StubServer) -> None:
    server.more = {"kinds": [_kind("cpu", 3, [[2, 4]]), _kind("gpu", 7, [[64, 6]])]}
    asked = ("export", "--format", "vllm", "--url", server.url)
    assert '"num_speculative_tokens": 6' in run(*asked, "--kind", "gpu")
    with pytest.raises(ConfigError, match="--kind must be one of 'cpu', 'gpu', got nothing"):
        run(*asked)
    with pytest.raises(ConfigError, match="--kind must be one of 'cpu', 'gpu', got 'tpu'"):
        run(*asked, "--kind", "tpu")


def _kind(name: str, version: int, rungs: list[list[int]]) -> dict[str, Any]:
    table = {
        "version": version,
        "rungs": rungs,
        "mode": "adaptive",
        "source": "measured",
        "set_at_unix_s": 1e9,
    }
    entry = {"version": version, "at_unix_s": 1e9, "rungs": rungs}
    whys = ("older", f"batch 1: 2 -> {version} [dim]")
    return {"kind": name, "table": table, "history": [entry | {"why": why} for why in whys]}


@pytest.mark.parametrize(
    ("mode", "value", "says"),
    [
        ("on", None, "got 'on'"),
        ("off", "3", "takes no value, got '3'"),
        ("adaptive", "3", "adaptive takes no value, got '3'"),
        ("fixed", None, "needs a value"),
        ("table", None, "needs a value"),
        ("fixed", "x", "whole numbers, got 'x'"),
        ("fixed", "99", "between 0 and 16, got 99"),
        ("table", "1:5,8", "got '8'"),
        ("table", "1:5,1:6", "batch size 1 twice"),
        ("table", "1:x", "got 'x'"),
        ("table", "0:1", "got 0"),
        ("table", ",".join(f"{size}:1" for size in range(1, 66)), "at most 64 batch sizes, got 65"),
        ("x" * 10_000, None, "got 'xxx"),
        ("off", "x" * 10_000, "takes no value, got 'xxx"),
        ("fixed", "9" * 4000, "between 0 and 16, got 999"),
        ("table", "9" * 4000 + ":1", "batch sizes between 1 and 2147483647, got 999"),
        ("table", f"{'9' * 4000}:1,{'9' * 4000}:1", "batch size 999.* twice"),
    ],
)
def test_bad_words_are_refused_before_anything_is_sent(
    mode: str, value: str | None, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read_policy(mode, value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((503, b'{"error": {"message": "no policy actor", "type": "x"}}'), "503: no policy actor"),
        ((200, b"<html>hello</html>"), "not Paceline"),
        ((200, b"{}"), "not Paceline"),
        ((200, b'{"text": "x"}'), "not Paceline"),
        ((404, b""), "answered 404"),
        ((500, b'{"error": {"message": "a\\n' + b"x" * 10**6 + b'"}}'), "500: a xxx"),
    ],
)
def test_another_answer_is_one_line(
    server: StubServer, answer: tuple[int, bytes], says: str
) -> None:
    server.answer = answer
    with pytest.raises(ConfigError, match=says) as caught:
        run("show", "--url", server.url)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_no_answer_is_one_line(server: StubServer) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(ConfigError, match="no answer from http"):
        run("show", "--url", server.url)
    with pytest.raises(ConfigError, match="no answer from nonsense"):
        run("show", "--url", "nonsense")
