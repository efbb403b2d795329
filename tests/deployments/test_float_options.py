"""No option with a real number takes one that is none, or that has no end."""

from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from deployments.cli import app
from deployments.commands.numbers import numbers
from engine.errors import ConfigError

NEEDED = {
    "simulate": ["simulate", "--cost", "a100-7b"],
    "traffic": ["bench", "traffic"],
    "trace": ["bench", "trace", "chats.csv", "--slowdown", "1"],
    "chat": ["chat"],
    "calibrate": ["calibrate"],
    "distill": ["distill", "--target", "model", "--out", "draft"],
    "evaluate_draft": ["draft", "eval", "--target", "model"],
}


def commands(group: typer.Typer) -> Iterator[Callable[..., Any]]:
    yield from (info.callback for info in group.registered_commands if info.callback is not None)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            yield from commands(inner.typer_instance)


def options() -> Iterator[tuple[str, str]]:
    """(command, option)"""
    for command in commands(app):
        for name, kind in get_type_hints(command).items():
            if kind in (float, float | None):
                yield command.__name__, f"--{name.replace('_', '-')}"


OPTIONS = list(options())


def test_options_were_found() -> None:
    assert {("simulate", "--day"), ("trace", "--slowdown"), ("traffic", "--timeout")} <= {*OPTIONS}
    assert len(OPTIONS) > 20


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        *((command, option, "nan") for command, option in OPTIONS),
        *(("simulate", "--slo-ttft", value) for value in ("inf", "-inf", "many")),
    ],
)
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
