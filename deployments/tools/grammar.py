"""The grammar of a reply that must be calls: the schema of one function's arguments, or a list of
calls of any. `forced` reads what it lets through."""

import json
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import unquote

from deployments.json_values import show
from deployments.tools.schemas import NamedToolChoice, Tool
from engine.errors import RequestError
from engine.request import GrammarSpec

_SCHEMAS_BY_NAME = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
)
"""Keywords whose keys are names, which may look like keywords."""
_DATA = frozenset(("const", "enum", "default", "examples", "dependentRequired"))
"""Keywords whose values are no schemas, whatever they look like."""


def forced_grammar(
    tools: Sequence[Tool], choice: Literal["required"] | NamedToolChoice, parallel: bool
) -> GrammarSpec:
    """Raises RequestError where a `$ref` in a function's parameters leads nowhere."""
    named = choice.name if isinstance(choice, NamedToolChoice) else None
    schemas = {}
    for index, tool in enumerate(tools):
        if named in (None, tool.name):
            # Where one is the whole schema, references from its root hold as they are.
            root = "#" if named else f"#/$defs/{tool.name}"
            field = f"tools[{index}].function.parameters"
            schemas[tool.name] = _Embedding(tool.parameters, root, field).schema()
    schema = schemas[named] if named else _list_of_calls(schemas, parallel)
    return GrammarSpec("json_schema", json.dumps(schema))


def _list_of_calls(schemas: dict[str, Any], parallel: bool) -> dict[str, Any]:
    calls = [
        {
            "type": "object",
            # In this order, as the name must be known before arguments can be streamed.
            "properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{name}"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name in schemas
    ]
    return {
        "type": "array",
        "items": {"anyOf": calls},
        "minItems": 1,
        **({} if parallel else {"maxItems": 1}),
        "$defs": schemas,
    }


class _Embedding:
    """A schema moved to another place, its references with it."""

    def __init__(self, schema: dict[str, Any], root: str, field: str) -> None:
        self._schema = schema
        self._root = root
        """Where the schema will stand, as a reference."""
        self._field = field

    def schema(self) -> Any:
        return self._moved(self._schema)

    def _moved(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self._moved(entry) for entry in part]
        if not isinstance(part, dict):
            return part
        moved: dict[str, Any] = {}
        for key, value in part.items():
            if key == "$ref":
                moved[key] = self._moved_reference(value)
            elif key in _SCHEMAS_BY_NAME and isinstance(value, dict):
                moved[key] = {name: self._moved(entry) for name, entry in value.items()}
            else:
                moved[key] = value if key in _DATA else self._moved(value)
        return moved

    def _moved_reference(self, reference: object) -> str:
        if not isinstance(reference, str) or not self._leads_somewhere(reference):
            raise RequestError(
                self._field,
                f'{self._field} must be a schema whose every "$ref" leads to a part of it, as in '
                f'"#/$defs/name", got {show(reference)}',
            )
        return self._root + reference.removeprefix("#")

    def _leads_somewhere(self, reference: str) -> bool:
        root, *steps = unquote(reference).split("/")
        place: Any = self._schema
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict) and name in place:
                place = place[name]
            elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
                place = place[int(name)]
            else:
                return False
        return root == "#"
