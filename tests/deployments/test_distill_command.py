"""`paceline distill` and `paceline draft eval`, from the command line to the folder."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from deployments.cli import app
from engine.errors import ConfigError
from tests.tiny import save_tiny_llama

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("target"), num_hidden_layers=3)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [{"turns": [f"Tell me about {i}."]} for i in range(22)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def options(target: Path, out: Path, prompts: Path) -> list[str]:
    return [
        *("--target", str(target), "--out", str(out), "--prompts", str(prompts)),
        *("--layers", "0,2", "--epochs", "1", "--max-answer", "16", "--no-compile"),
    ]


def refusal(*arguments: str) -> str:
    """The one line that a command ends with."""
    outcome = CliRunner().invoke(app, [*arguments])
    assert isinstance(outcome.exception, ConfigError), outcome.output
    assert "\n" not in str(outcome.exception)
    return str(outcome.exception)


def test_from_prompts_to_a_judged_draft(target: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "draft"
    outcome = CliRunner().invoke(app, ["distill", *options(target, out, prompts)])
    assert outcome.exit_code == 0, outcome.output
    assert f"{out} is ready. On held-out prompts" in outcome.output
    about = json.loads((out / "distillation.json").read_text())
    assert about["layers"] == [0, 2]

    judged, picture = tmp_path / "judged.json", tmp_path / "judged.png"
    outcome = CliRunner().invoke(
        app,
        [
            *("draft", "eval", "--target", str(target), "--draft", str(out)),
            *("--prompts", str(prompts), "--batch-sizes", "1,2", "--lengths", "1,2"),
            *("--new-tokens", "8", "--max-prompts", "4", "--no-compile"),
            *("--json", str(judged), "--plot", str(picture)),
        ],
    )
    assert outcome.exit_code == 0, outcome.output
    assert "kept with all before it" in outcome.output
    assert "measured" in outcome.output
    told = json.loads(judged.read_text())
    assert told["complete"]
    assert [batch["batch_size"] for batch in told["batches"]] == [1, 2]
    first, second = told["acceptance_by_position"]
    assert told["rounds"] >= first["tried"] >= second["tried"] > 0
    assert first["right"] >= second["right"]
    assert all(len(batch["measured"]) == 3 for batch in told["batches"])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_stops_and_the_same_command_goes_on(
    target: Path, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "draft"
    arguments = ["distill", *options(target, out, prompts), "--max-answer", "100"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from deployments.cli import main; main()", *arguments],
        cwd=ROOT,
        text=True,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    seen = ""
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            seen += line
            if "asking the target: " in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130, seen
    assert "Stopped. The same command goes on from here." in seen
    assert not out.exists()
    assert (tmp_path / "draft.work" / "plan.json").is_file()
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft"]


def test_what_is_wrong_is_said_in_one_line(target: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "draft"
    assert "--prompts or --text must name at least one file" in refusal(
        "distill", "--target", str(target), "--out", str(out)
    )
    assert "--target: there is no folder" in refusal(
        "distill", *options(tmp_path / "none", out, prompts)
    )
    assert "--layers must be a number or numbers with commas between, got 'x'" in refusal(
        "distill", *options(target, out, prompts), "--layers", "x"
    )
    assert "--layers must be at most 3, all the target has, got 4" in refusal(
        "distill", *options(target, out, prompts), "--layers", "4"
    )
    evaluate = ("draft", "eval", "--target", str(target), "--prompts", str(prompts))
    assert "--draft must name a model exactly when --drafter is model or cascade" in refusal(
        *evaluate, "--drafter", "cascade"
    )
    assert "--lengths must be numbers from 1 to 16 with commas between, got '0,4'" in refusal(
        *evaluate, "--lengths", "0,4"
    )
    assert "--batch-sizes must be numbers from 1 to 1024" in refusal(
        *evaluate, "--batch-sizes", "1;2"
    )
    assert "there is no folder" in refusal(*evaluate, "--json", str(tmp_path / "a" / "b.json"))


def test_a_folder_that_exists_is_refused_before_anything_is_done(
    target: Path, prompts: Path, tmp_path: Path
) -> None:
    assert "exists already" in refusal("distill", *options(target, tmp_path, prompts))
