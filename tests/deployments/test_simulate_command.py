"""`paceline simulate`, as a person would call it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deployments.cli import app
from engine.errors import ConfigError

FEW = ["--gamma", "0.1,1", "--requests", "12", "--new-tokens", "8", "--max-num-seqs", "4"]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", "--cost", "a100-7b", *arguments])


def test_it_compares_the_arms_and_writes_what_it_found(tmp_path: Path) -> None:
    file, folder = tmp_path / "out.json", tmp_path / "report"
    said = call(*FEW, "--json", str(file), "--report", str(folder), "--replicas", "2", "--search")
    assert said.exit_code == 0, said.output
    told = json.loads(file.read_text())
    assert list(told["arms"]) == ["off", "fixed-2", "fixed-4", "table", "adaptive"]
    for arm in told["arms"].values():
        assert (arm["answered"], arm["unanswered"]) == (12, 0)
        assert arm["new_tokens"] == 12 * 8
        assert arm["replicas_needed"] == 1
    assert told["is_complete"]
    assert told["environment"]["versions"]["paceline"]
    report = (folder / "report.md").read_text()
    assert "| adaptive | 12 |" in report
    for picture in ("latency.png", "times.png"):
        assert f"({picture})" in report
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gamma", "1,1", "--trace", "x.csv"], "one of them only"),
        ([], "--gamma or --trace must be given"),
        (["--gamma", "0,1"], "--gamma must be MEAN,CV"),
        (["--gamma", "1"], "--gamma must be MEAN,CV"),
        (["--trace", "missing.csv"], "--trace missing.csv: can't be read"),
        (["--gamma", "1,1", "--rate", "0"], "--rate must be above 0"),
        (["--gamma", "1,1", "--slo-ttft", "0"], "--slo-ttft must be above 0"),
        (["--gamma", "1,1", "--json", "nowhere/x.json"], "there is no folder"),
    ],
)
def test_bad_options_are_refused_by_name(arguments: list[str], said: str) -> None:
    result = call(*arguments)
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)


def test_places_that_cannot_be_written_are_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.simulate.run.simulate", lambda *_: pytest.fail("simulated"))
    file = tmp_path / "file"
    file.write_text("kept")
    for option, place, said in (
        ("--report", file, "can't be made a folder: File exists"),
        ("--report", file / "within", "can't be made a folder: Not a directory"),
        ("--json", tmp_path, "is a folder; name a file"),
        ("--json", tmp_path / "none" / "x.json", "there is no folder"),
    ):
        result = call(*FEW, option, str(place))
        assert isinstance(result.exception, ConfigError)
        assert str(result.exception).startswith(f"{option} {place}: {said}")
    assert file.read_text() == "kept"


def test_what_was_simulated_before_a_stop_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deployments.commands.terminal import Terminal

    asked: list[bool] = []

    def stopped(self: Terminal) -> bool:
        asked.append(True)
        return len(asked) > 18  # in the second arm

    monkeypatch.setattr(Terminal, "stopped", property(stopped))
    file = tmp_path / "out.json"
    result = call(*FEW, "--json", str(file))
    assert result.exit_code == 130
    told = json.loads(file.read_text())
    assert not told["is_complete"]
    assert list(told["arms"]) == ["off", "fixed-2"]
    assert told["arms"]["off"]["answered"] == 12
    assert told["arms"]["fixed-2"]["arrived"] == 7
