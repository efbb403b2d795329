"""`paceline dashboards` as it is called: files, a Grafana that is a stub, and refusals."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.dashboard.dashboard import dashboard
from cluster.metrics.rules import ALERTS
from deployments.cli import main
from deployments.commands.dashboards import MAX_TOKEN_CHARACTERS
from tests.cluster.dashboard.grafana_stub import TOKEN, GrafanaStub, serving

VARIABLE = "PACELINE_GRAFANA_TOKEN"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrafanaStub]:
    monkeypatch.setenv(VARIABLE, TOKEN)
    with serving(GrafanaStub()) as stub:
        yield stub


class Ran:
    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        self.code: object = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["paceline", "dashboards", *arguments])
            try:
                main()
            except SystemExit as end:
                self.code = end.code
        self.out, self.err = capsys.readouterr()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    ran = Ran(capsys, *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert TOKEN not in ran.out + ran.err
    return ran.err


def test_render_writes_whole_files_and_writes_them_equal_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "folder"
    assert Ran(capsys, "render", "--out", str(out)).code == 0
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert written.keys() == {"paceline-dashboard.json", "paceline-alert-rules.json"}
    assert json.loads(written["paceline-dashboard.json"]) == dashboard()
    (group,) = json.loads(written["paceline-alert-rules.json"])["groups"]
    assert [rule["title"] for rule in group["rules"]] == [alert.name for alert in ALERTS]
    assert Ran(capsys, "render", "--out", str(out)).code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written


def test_render_refuses_a_folder_that_is_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    assert "--out: can't write to" in refused(capsys, "render", "--out", str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def test_apply_tells_what_it_did_and_the_second_time_that_there_was_nothing_to_do(
    capsys: pytest.CaptureFixture[str], stub: GrafanaStub
) -> None:
    first = Ran(capsys, "apply", "--url", stub.url)
    assert first.code == 0
    assert "created   folder 'Paceline'" in first.out
    assert "created   data source 'Paceline' at http://127.0.0.1:9090" in first.out
    assert first.out.count("created   alert rule") == len(ALERTS)
    assert "Nothing to change." not in first.out
    assert f"{stub.url}/d/paceline" in first.out
    kept, writes = stub.kept.state(), len(stub.writes())
    again = Ran(capsys, "apply", "--url", stub.url)
    assert (again.code, "created" in again.out) == (0, False)
    assert "Nothing to change." in again.out
    assert (stub.kept.state(), len(stub.writes())) == (kept, writes)
    assert TOKEN not in first.out + first.err + again.out + again.err


def test_names_are_the_persons_own(capsys: pytest.CaptureFixture[str], stub: GrafanaStub) -> None:
    more = ("--folder", "Team", "--datasource", "Main", "--prometheus-url", "http://p:9090")
    assert Ran(capsys, "apply", "--url", stub.url, *more).code == 0
    assert [folder["title"] for folder in stub.kept.folders.values()] == ["Team"]
    (source,) = stub.kept.datasources.values()
    assert (source["name"], source["url"]) == ("Main", "http://p:9090")


def test_delete_undoes_apply_and_has_nothing_to_do_then(
    capsys: pytest.CaptureFixture[str], stub: GrafanaStub
) -> None:
    Ran(capsys, "apply", "--url", stub.url)
    gone = Ran(capsys, "delete", "--url", stub.url)
    assert gone.code == 0
    assert "deleted   dashboard 'Paceline'" in gone.out
    assert "deleted   folder 'Paceline'" in gone.out
    assert (stub.kept.folders, stub.kept.dashboards, stub.kept.rules) == ({}, {}, {})
    assert Ran(capsys, "delete", "--url", stub.url).out == "Nothing to delete.\n"


def test_a_failure_tells_how_far_it_went(
    capsys: pytest.CaptureFixture[str], stub: GrafanaStub
) -> None:
    stub.before = lambda method, path: (
        (412, {"message": "changed"}) if (method, path) == ("POST", "/dashboards/db") else None
    )
    ran = Ran(capsys, "apply", "--url", stub.url)
    assert (ran.code, ran.out.count("created")) == (2, 2)
    assert ran.err.startswith("paceline: error: ")
    assert "answered 412, asked to write the dashboard: changed" in ran.err
    stub.before = lambda method, path: None
    assert Ran(capsys, "apply", "--url", stub.url).out.count("created") == 1 + len(ALERTS)


@pytest.mark.parametrize("command", ["apply", "delete"])
def test_a_refused_token_changes_nothing(
    capsys: pytest.CaptureFixture[str],
    stub: GrafanaStub,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.setenv(VARIABLE, "glsa_wrong")
    assert "answered 401, asked to list folders" in refused(capsys, command, "--url", stub.url)
    assert stub.writes() == []


def test_the_token_may_come_from_a_file_or_the_option(
    capsys: pytest.CaptureFixture[str],
    stub: GrafanaStub,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv(VARIABLE, "glsa_wrong")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    for given in (("--token-file", str(tmp_path / "token")), ("--token", TOKEN)):
        assert Ran(capsys, "apply", "--url", stub.url, *given).code == 0


@pytest.mark.parametrize("token", ["", " \n", "two words", "tökén", "a\x00b", "x" * 5000])
def test_a_token_that_can_be_none_is_refused_and_not_shown(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    token: str,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "token").write_text(token)
    given = ("--token-file", str(tmp_path / "token"))
    told = refused(capsys, "apply", "--url", "http://127.0.0.1:1", *given)
    assert "--token" in told
    assert not token.strip() or token.strip() not in told
    assert len(told) < MAX_TOKEN_CHARACTERS


def test_without_a_token_the_ways_to_give_one_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    told = refused(capsys, "apply", "--url", "http://127.0.0.1:1")
    assert all(way in told for way in ("--token", VARIABLE, "--token-file"))
    missing = str(tmp_path / "none")
    told = refused(capsys, "apply", "--url", "http://127.0.0.1:1", "--token-file", missing)
    assert "can't read" in told


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 191])
def test_names_that_grafana_would_not_take_are_refused(
    capsys: pytest.CaptureFixture[str], stub: GrafanaStub, name: str
) -> None:
    for option in ("--folder", "--datasource"):
        assert f"{option} must be" in refused(capsys, "apply", "--url", stub.url, option, name)
    assert stub.calls == []


@pytest.mark.parametrize("url", ["prometheus:9090", "http://me:hunter2@p:9090"])
def test_an_address_of_prometheus_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], stub: GrafanaStub, url: str
) -> None:
    told = refused(capsys, "apply", "--url", stub.url, "--prometheus-url", url)
    assert "--prometheus-url must" in told
    assert "hunter2" not in told
    assert stub.calls == []


def test_help_does_not_show_the_token(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    shown = Ran(capsys, "apply", "--help").out
    assert VARIABLE in shown
    assert TOKEN not in shown
