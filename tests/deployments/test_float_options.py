"""No option with a real number takes one that is none, or that has no end."""

from collections.abc import Iterator
from typing import get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from deployments.cli import app
from deployments.commands.bench import bench_app
from deployments.commands.numbers import numbers
from deployments.commands.simulate import simulate
from engine.errors import ConfigError

NEEDED = {
    "simulate": ["simulate", "--cost", "a100-7b"],
    "traffic": ["bench", "traffic"],
    "trace": ["bench", "trace", "chats.csv", "--slowdown", "1"],
}


def options() -> Iterator[tuple[str, str]]:
    """(command, option)"""
    for command in (simulate, *(info.callback for info in bench_app.registered_commands)):
        assert command is not None
        for name, kind in get_type_hints(command).items():
            if kind in (float, float | None):
                yield command.__name__, f"--{name.replace('_', '-')}"


OPTIONS = list(options())


def test_options_were_found() -> None:
    assert {("simulate", "--day"), ("trace", "--slowdown"), ("traffic", "--timeout")} <= {*OPTIONS}
    assert len(OPTIONS) > 20


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "many"])
@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_what_is_no_finite_number_is_refused(command: str, option: str, value: str) -> None:
    arguments = [*NEEDED[command], option, value]
    error = CliRunner().invoke(app, arguments, standalone_mode=False).exception
    assert isinstance(error, typer.BadParameter)
    said = error.format_message()
    assert said.startswith(f"Invalid value for '{option}': must be a finite number")
    assert said.endswith(f", got '{value}'")


@pytest.mark.parametrize(
    ("command", "option", "value", "wanted"),
    [
        ("simulate", "--day", "1", "from 0 to 0.99"),
        ("traffic", "--seconds", "0", "from 0.01 on"),
        ("traffic", "--timeline-cv", "101", "from 0 to 100"),
    ],
)
def test_ranges_hold(command: str, option: str, value: str, wanted: str) -> None:
    arguments = [*NEEDED[command], option, value]
    error = CliRunner().invoke(app, arguments, standalone_mode=False).exception
    assert isinstance(error, typer.BadParameter)
    assert error.format_message().endswith(f"must be a finite number {wanted}, got '{value}'")


@pytest.mark.parametrize("text", ["1,nan", "inf", "0.5", "101"])
def test_lists_of_numbers_are_finite_and_in_their_range(text: str) -> None:
    with pytest.raises(ConfigError, match="--cvs must be numbers from 1 to 100 with commas"):
        numbers(text, "--cvs", 1.0, 100.0)
    with pytest.raises(ConfigError, match="--x must be numbers from 1 on with commas between"):
        numbers("inf", "--x", 1.0)
