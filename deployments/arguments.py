"""Arguments of the application builder: the command line's texts, or a deploy file's values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from deployments.config import AppConfig, parse_config
from deployments.config_errors import load_yaml, parse_yaml
from engine.errors import ConfigError

CONFIG_FILE = "config"


def parse_arguments(arguments: Mapping[str, Any]) -> AppConfig:
    """Read `{"config": file, key: value, ...}`; keys may be dotted and override the file's.

    `serve run` passes every value as text: `model=x policy=off engine.max_num_seqs=8`. Such a text
    is read as YAML unless the key itself holds a text. Raises ConfigError.

    >>> parse_arguments({"policy": "{fixed: 2}", "engine.max_num_seqs": "8"}).engine.max_num_seqs
    8
    """
    arguments = dict(arguments)
    file = arguments.pop(CONFIG_FILE, None)
    where = "arguments"
    values: dict[str, Any] = {}
    if file is not None:
        if not isinstance(file, str):
            raise ConfigError(f"arguments: config must be the path of a YAML file, got {file!r}")
        where = file
        values = load_yaml(Path(file))
        # First the file alone, so that a fault of it is not taken for one of the arguments.
        parse_config(values, where)
        where = f"{file} with arguments"
    for key, value in arguments.items():
        path = str(key).split(".")
        if isinstance(value, str) and not _holds_text(path):
            value = parse_yaml(value, f"arguments: {key}")
        values = _with_value(values, path, value)
    return parse_config(values, where)


def _with_value(values: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """`values` with the one at `path` replaced; groups of keys are merged, but not a policy."""
    name, *rest = path
    old = values.get(name)
    group: Mapping[str, Any] = old if isinstance(old, Mapping) else {}
    if rest:
        value = _with_value(group, rest, value)
    elif isinstance(value, Mapping) and name != "policy":
        value = {**group, **value}
    return {**values, name: value}


def _holds_text(path: list[str]) -> bool:
    section: type[BaseModel] = AppConfig
    for name in path[:-1]:
        field = section.model_fields.get(name)
        if field is None or not (
            isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        ):
            return False
        section = field.annotation
    field = section.model_fields.get(path[-1])
    if field is None:
        return False
    kinds = (field.annotation, *get_args(field.annotation))
    return any(
        kind is str or get_origin(kind) is Literal or str in get_args(kind) for kind in kinds
    )
