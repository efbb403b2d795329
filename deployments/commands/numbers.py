"""Numbers as options, and lists of them: 1,2,4."""

import math
from collections.abc import Callable
from typing import Any

import typer

from engine.errors import ConfigError
from policy.quoting import shown


def real_option(*, help: str, min: float | None = None, max: float | None = None) -> Any:
    """An option with a real number, as `typer.Option` makes it; but a value out of range is told,
    and so are NaN, which is in every range, and infinity, which is in those without an end."""
    return typer.Option(min=min, max=max, help=help, parser=_real(min, max))


def _real(least: float | None, most: float | None) -> Callable[[str], float]:
    """Raises typer.BadParameter, to which typer adds the option's name."""
    bounds = [
        *(() if least is None else (f"from {least:g}" + (" on" if most is None else ""),)),
        *(() if most is None else (f"to {most:g}",)),
    ]
    wanted = " ".join(["a finite number", *bounds])

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (
            math.isfinite(number)
            and (least is None or number >= least)
            and (most is None or number <= most)
        ):
            raise typer.BadParameter(f"must be {wanted}, got {shown(text)}")
        return number

    return read


def whole_numbers(text: str, name: str, least: int, most: int) -> tuple[int, ...]:
    """In rising order, each once. Raises ConfigError, which `name` begins."""
    try:
        numbers = {int(number) for number in text.split(",")}
    except ValueError:
        numbers = set()
    if not numbers or not all(least <= number <= most for number in numbers):
        raise ConfigError(
            f"{name} must be numbers from {least} to {most} with commas between, got {text!r}"
        )
    return tuple(sorted(numbers))


def numbers(text: str, name: str, least: float, most: float | None = None) -> tuple[float, ...]:
    """As they come, from `least` to `most`, all of them finite. Raises ConfigError, which `name`
    begins."""
    try:
        found = tuple(float(number) for number in text.split(","))
    except ValueError:
        found = ()
    top = math.inf if most is None else most
    if not found or not all(least <= x <= top and math.isfinite(x) for x in found):
        upwards = "on" if most is None else f"to {most:g}"
        raise ConfigError(
            f"{name} must be numbers from {least:g} {upwards} with commas between, got "
            f"{shown(text)}"
        )
    return found
