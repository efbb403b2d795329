"""Reading a JSON object strictly, and showing any value in an error message."""

import json
from typing import Any, NoReturn

from engine.errors import RequestError

SHOWN_CHARACTERS = 80


class MalformedBody(RequestError):
    """The body is not one JSON object."""


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises MalformedBody for anything else.

    Stricter than `json.loads`: NaN and Infinity are not JSON, and a key given twice would be
    ignored once.
    """
    try:
        value = json.loads(
            body, parse_constant=_refuse_constant, object_pairs_hook=_without_duplicates
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise _malformed(f"the body is not valid JSON: {error.msg} at {where}") from None
    except UnicodeDecodeError as error:
        raise _malformed(f"the body is not valid UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _malformed("the body is nested too deeply") from None
    except ValueError:
        # What json.loads says of a number with thousands of digits.
        raise _malformed("the body holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise _malformed(f"the body must be a JSON object, got {show(value)}")
    return value


def show(value: object) -> str:
    """`value` as short JSON in ASCII, whatever it is."""
    try:
        text = json.dumps(_shortened(value))
    except (RecursionError, TypeError, ValueError):
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def _malformed(message: str) -> MalformedBody:
    return MalformedBody("body", message)


def _shortened(value: object) -> object:
    """Cut before rendering: a value may be as large as a whole body."""
    if isinstance(value, str):
        return value[:SHOWN_CHARACTERS]
    if isinstance(value, list | tuple):
        return [_shortened(entry) for entry in value[:SHOWN_CHARACTERS]]
    if isinstance(value, dict):
        return {key: _shortened(value[key]) for key in list(value)[:SHOWN_CHARACTERS]}
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _malformed(f"the body is not valid JSON: {name} is not a JSON number")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _malformed(f"the body gives {show(key)} twice in one object")
            seen.add(key)
    return found
