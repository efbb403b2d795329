"""One line for each way in which a configuration can be wrong."""

import difflib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from engine.errors import ConfigError
from policy.quoting import shown

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
    "greater_than": "above {gt}",
    "list_type": "a list",
    "finite_number": "a finite number",
    "model_type": "a group of keys",
    "model_attributes_type": "a group of keys",
}
_MERGE = "<<"
_KEYS_AS_WRITTEN = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")
"""`<<` and `=`, which stand for themselves."""
_KINDS = {"int": "whole number", "float": "number", "bool": "truth value", "timestamp": "date"}
_LONGEST_INT_BITS = 63
"""Far above all limits. Python refuses to print numbers of thousands of digits."""


class _StrictLoader(yaml.SafeLoader):
    """YAML as usual, except that a key given twice is an error and not the last one's victory."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._flat: set[yaml.MappingNode] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what a merge key (`<<`) brings in its place: own keys win, then those named first.

        Instead of PyYAML's own, which lets some that are named later win, and after which nobody
        can tell what a person has given twice.
        """
        if node in self._flat:
            return
        self._flat.add(node)
        pairs: dict[Hashable, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in pairs:
                raise _fault(f"key {shown(key)} is given twice", key_node)
            pairs[key] = key_node, value_node
        _, merged = pairs.pop(_MERGE, (None, None))
        node.value = list(pairs.values())
        if merged is None:
            return
        for source in merged.value if isinstance(merged, yaml.SequenceNode) else [merged]:
            if not isinstance(source, yaml.MappingNode):
                raise _fault(f"{_MERGE} takes a mapping or a list of mappings", source)
            self.flatten_mapping(source)
            for key_node, value_node in source.value:
                pairs.setdefault(self._key(key_node), (key_node, value_node))
        node.value = list(pairs.values())

    def _key(self, node: yaml.Node) -> Hashable:
        if node.tag in _KEYS_AS_WRITTEN:
            written: str = node.value
            return written
        key = self.construct_object(node, deep=True)
        if not isinstance(key, Hashable):
            raise _fault("a key must be a single value", node)
        return key

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError):
            # A value that has the form of a date or a number, and is none.
            kind = node.tag.rpartition(":")[2]
            text = shown(node.value) if isinstance(node, yaml.ScalarNode) else "this"
            raise _fault(f"{text} is no valid {_KINDS.get(kind, kind)}", node) from None
        if isinstance(value, int) and value.bit_length() > _LONGEST_INT_BITS:
            raise _fault(f"a whole number must fit in 64 bits, got {shown(value)}", node)
        return value


def _fault(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file ({} when it is empty). Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a UTF-8 text file"
        raise ConfigError(f"{path}: can't read the configuration: {reason}") from None
    values = parse_yaml(text, str(path))
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold keys and values, got {shown(values)}")
    return values


def parse_yaml(text: str, where: str) -> Any:
    """Whatever a YAML text holds. Raises ConfigError; `where` begins its message."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{where}: values are nested too deeply") from None
    except (ValueError, OverflowError) as error:
        # The scanner's own: an escaped character or a directive with a number out of range.
        raise ConfigError(f"{where}: not valid YAML: {error}") from None


def describe_fault(error: ValidationError, model: type[BaseModel]) -> str:
    """The first fault in one line: key, what is allowed, value."""
    fault = error.errors()[0]
    path = [str(part) for part in fault["loc"]]
    if fault["type"] in ("extra_forbidden", "invalid_key"):
        return _describe_unknown_key(path, model)
    key = ".".join(path)
    value = shown(fault["input"])
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
