"""JSON schemas: which keywords are honoured. All others are refused by name.

llguidance refuses the standard keywords that it does not implement, but ignores those that it has
never heard of, `nullable` for one. And it counts a key that comes twice as two properties.
"""

import json
from collections.abc import Iterator
from typing import Any

from engine.errors import GrammarError

_HONOURED = """
    $ref additionalItems additionalProperties allOf anyOf const enum exclusiveMaximum
    exclusiveMinimum format items maxItems maxLength maxProperties maximum minItems minLength
    minProperties minimum multipleOf oneOf pattern patternProperties prefixItems properties
    required type
"""
_ANNOTATIONS = """
    $anchor $comment $defs $id $schema contentEncoding contentMediaType default definitions
    deprecated description discriminator example examples id readOnly title writeOnly
"""
"""They say nothing about which instances are valid (OpenAPI's discriminator only speeds oneOf)."""
_KNOWN = frozenset((_HONOURED + _ANNOTATIONS).split())

_ONE_SCHEMA = ("additionalItems", "additionalProperties", "items")
_SCHEMA_LIST = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_SCHEMA_MAP = ("$defs", "definitions", "patternProperties", "properties")

_MAX_SUBSCHEMAS = 5_000
_MAX_PROPERTIES = 200
"""Of one object, required ones included. The work grows with the square of optional ones."""
_MAX_PATTERN_PROPERTIES = 50
_MAX_PATTERN_CHARS = 5_000
"""Of all patterns together."""

_LAYOUT = {
    # Whitespace without a bound is a place where models stay for ever.
    "whitespace_pattern": r"\n[ \t]{0,60}|[ \t]{1,4}",
    # An escape "\u0061" would hide the property "a" from the schema of "a".
    "json_allowed_escapes": 'nrbtf\\"',
}


def read_schema(source: str) -> dict[str, Any]:
    """The schema in `source`, for llguidance. Raises GrammarError for what can't be honoured."""
    schema = read_json(source)
    if not isinstance(schema, dict):
        raise GrammarError(f"a JSON schema must be an object, got {_short(schema)}")
    _check(schema)
    return {**schema, "x-guidance": _LAYOUT}


def read_json(source: str) -> Any:
    """`source` parsed. Raises GrammarError."""
    try:
        return json.loads(source)
    except RecursionError:
        raise GrammarError("JSON nested too deeply") from None
    except ValueError as error:
        raise GrammarError(f"not JSON: {error}") from error


def _check(root: dict[str, Any]) -> None:
    unseen: list[tuple[str, Any]] = [("#", root)]
    num_schemas = num_pattern_chars = 0
    while unseen:
        path, schema = unseen.pop()
        num_schemas += 1
        _require_at_most("subschemas", num_schemas, _MAX_SUBSCHEMAS, "#")
        if not isinstance(schema, dict):
            continue  # true, false, or something that llguidance refuses
        for keyword in schema:
            if keyword not in _KNOWN:
                raise GrammarError(f"schema keyword {_short(keyword)} at {path} is not supported")
        _check_properties(path, schema)
        num_pattern_chars += sum(map(len, _patterns(schema)))
        _require_at_most("characters in patterns", num_pattern_chars, _MAX_PATTERN_CHARS, "#")
        unseen += _subschemas(path, schema)


def _subschemas(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        if keyword in _SCHEMA_MAP and isinstance(value, dict):
            yield from ((f"{path}/{keyword}/{name}", each) for name, each in value.items())
        elif keyword in _SCHEMA_LIST and isinstance(value, list):
            yield from ((f"{path}/{keyword}/{i}", each) for i, each in enumerate(value))
        elif keyword in _ONE_SCHEMA:
            yield f"{path}/{keyword}", value


def _check_properties(path: str, schema: dict[str, Any]) -> None:
    required = _strings(schema.get("required"))
    names = required.union(_strings(schema.get("properties")))
    _require_at_most("properties", len(names), _MAX_PROPERTIES, path)
    patterns = _strings(schema.get("patternProperties"))
    _require_at_most("patternProperties", len(patterns), _MAX_PATTERN_PROPERTIES, path)
    # One property can't come twice, required ones don't, but others may: {"x": 1, "x": 2}.
    least = schema.get("minProperties")
    if isinstance(least, int):
        _require_at_most("minProperties", least, max(1, len(required)), path)


def _patterns(schema: dict[str, Any]) -> Iterator[str]:
    yield from _strings(schema.get("patternProperties"))
    if isinstance(pattern := schema.get("pattern"), str):
        yield pattern


def _strings(value: object) -> set[str]:
    return (
        {each for each in value if isinstance(each, str)}
        if isinstance(value, list | dict)
        else set()
    )


def _require_at_most(what: str, number: int, limit: int, path: str) -> None:
    if number > limit:
        raise GrammarError(f"schema: {what} at {path} must be at most {limit}, got {number}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
