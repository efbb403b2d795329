"""One line for each way in which a configuration can be wrong."""

import difflib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from engine.errors import ConfigError

_EXPECTATIONS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "literal_error": "one of {expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "model_type": "a group of keys",
    "model_attributes_type": "a group of keys",
}


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML as usual, except that a key given twice is an error and not the last one's victory."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file ({} when it is empty). Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a UTF-8 text file"
        raise ConfigError(f"{path}: can't read the configuration: {reason}") from None
    values = parse_yaml(text, str(path))
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold keys and values, got {_shown(values)}")
    return values


def parse_yaml(text: str, where: str) -> Any:
    """Whatever a YAML text holds. Raises ConfigError; `where` begins its message."""
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from None


def describe_fault(error: ValidationError, model: type[BaseModel]) -> str:
    """The first fault in one line: key, what is allowed, value."""
    fault = error.errors()[0]
    path = [str(part) for part in fault["loc"]]
    if fault["type"] in ("extra_forbidden", "invalid_key"):
        return _describe_unknown_key(path, model)
    key = ".".join(path)
    value = _shown(fault["input"])
    if fault["type"] in ("value_error", "assertion_error"):
        message = str(fault["ctx"]["error"])
        if not key:
            return message
        separator = " " if message.startswith("must be") else "."
        return f"{key}{separator}{message}"
    expectation = _EXPECTATIONS.get(fault["type"])
    if expectation is None:
        return f"{key}: {fault['msg']}, got {value}"
    return f"{key} must be {expectation.format(**fault.get('ctx', {}))}, got {value}"


def _describe_unknown_key(path: list[str], model: type[BaseModel]) -> str:
    section: type[BaseModel] = model
    for name in path[:-1]:
        section = _section(section.model_fields[name].annotation)
    known = list(section.model_fields)
    nearest = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.6)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"
    return f"{'.'.join(path)} is not a known key; {hint}"


def _section(annotation: Any) -> type[BaseModel]:
    candidates = (annotation, *get_args(annotation))
    return next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
