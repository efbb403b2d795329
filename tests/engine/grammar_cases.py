"""Grammars that a tiny model can follow to the end, and how to tell, without them, that it did."""

import json
import re
from collections.abc import Callable
from typing import Any

from engine.request import GrammarSpec


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


def _is_point(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and list(value) == ["x", "ok"]
        and type(value["x"]) is int
        and type(value["ok"]) is bool
    )


def _is_json(check: Callable[[Any], bool]) -> Callable[[str], bool]:
    def conforms(text: str) -> bool:
        try:
            return check(json.loads(text))
        except ValueError:
            return False

    return conforms


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["x", "ok"],
    "additionalProperties": False,
}
DIGITS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 9},
    "minItems": 2,
    "maxItems": 4,
}

GRAMMARS: dict[GrammarSpec, Callable[[str], bool]] = {
    GrammarSpec("regex", "[ab]{2,9}"): _matches("[ab]{2,9}"),
    GrammarSpec("regex", "(x|yz)*!"): _matches("(x|yz)*!"),
    GrammarSpec("regex", "[^a-z]{4}"): _matches("[^a-z]{4}"),
    GrammarSpec("choice", '["yes", "no", "yesterday"]'): _matches("yes|no|yesterday"),
    GrammarSpec("json_object"): _is_json(lambda value: isinstance(value, dict)),
    GrammarSpec("json_schema", json.dumps(POINT)): _is_json(_is_point),
    GrammarSpec("json_schema", json.dumps(DIGITS)): _is_json(
        lambda value: 2 <= len(value) <= 4 and set(value) <= set(range(10))
    ),
    GrammarSpec("grammar", 'root ::= "(" root ")" | [0-9]+'): _matches(r"\(*[0-9]+\)*"),
}
"""What the finished text must be."""
