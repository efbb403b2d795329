"""Lists of numbers as options: 1,2,4."""

import math

from engine.errors import ConfigError


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


def numbers(text: str, name: str, least: float) -> tuple[float, ...]:
    """As they come, `least` and above. Raises ConfigError, which `name` begins."""
    try:
        found = tuple(float(number) for number in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(least <= number < math.inf for number in found):
        raise ConfigError(
            f"{name} must be numbers from {least:g} on with commas between, got {text!r}"
        )
    return found
