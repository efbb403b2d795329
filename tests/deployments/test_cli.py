"""The command line's root: help, exit codes, one line for an error."""

import subprocess
import sys
from pathlib import Path

import pytest

from deployments import cli
from engine.errors import ConfigError, EngineDead

ROOT = Path(__file__).parents[2]


def paceline(*arguments: str) -> "subprocess.CompletedProcess[str]":
    code = "from deployments.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_help_lists_every_command() -> None:
    done = paceline("--help")
    assert done.returncode == 0
    for command in ("serve", "chat", "distill", "draft", "models", "policy"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        *("serve", "chat", "models", "models get", "models list", "models path", "policy set"),
        *("distill", "draft", "draft eval"),
    ],
)
def test_every_command_has_help(command: str) -> None:
    done = paceline(*command.split(), "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout


def test_help_starts_neither_pytorch_nor_ray() -> None:
    code = (
        "import sys, deployments.cli\n"
        "sys.exit(bool({'torch', 'ray', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_version() -> None:
    done = paceline("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("paceline ")


def test_configuration_error_is_one_line_and_exit_code_2() -> None:
    done = paceline("models", "path", "./no-such-folder")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "paceline: error: model: there is no folder './no-such-folder'\n"


def test_unknown_command_is_refused() -> None:
    done = paceline("sing")
    assert done.returncode == 2
    assert "sing" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "exit_code", "stderr"),
    [
        (ConfigError("model: none"), 2, "paceline: error: model: none\n"),
        (EngineDead("a step failed"), 1, "paceline: error: a step failed\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            OSError("disk\nfull"),
            1,
            "paceline: error: OSError: disk full (set PACELINE_DEBUG=1 to see where)\n",
        ),
    ],
)
def test_errors_end_with_their_exit_code(
    error: BaseException,
    exit_code: int,
    stderr: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing() -> None:
        raise error

    monkeypatch.setattr(cli, "app", failing)
    monkeypatch.delenv("PACELINE_DEBUG", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == exit_code
    assert capsys.readouterr().err == stderr


def test_an_unexpected_error_is_raised_where_its_place_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing() -> None:
        raise OSError("disk full")

    monkeypatch.setattr(cli, "app", failing)
    monkeypatch.setenv("PACELINE_DEBUG", "1")
    with pytest.raises(OSError, match="disk full"):
        cli.main()
