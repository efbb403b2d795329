"""Grafana's own types of dashboards and alert rules, as a check.

`grafana-foundation-sdk` has them as classes that are generated from Grafana's schemas, one release
of it for each of Grafana. Its classes take whatever they are given, so what they declare is
checked here.
"""

import enum
import functools
import json
import sys
import types
import typing
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.alerting import Rule
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel, RowPanel

register_default_plugins()


def dashboard_problems(data: dict[str, Any]) -> list[str]:
    """What is not as the schema has it: `path: reason`."""
    return _dashboard_problems(json.dumps(data))


@functools.cache
def _dashboard_problems(text: str) -> list[str]:
    """Tests write the same one again and again."""
    return _problems(json.loads(text), Dashboard)


def rule_problems(data: dict[str, Any]) -> list[str]:
    return _problems(data, Rule)


def _problems(data: dict[str, Any], model: Any) -> list[str]:
    try:
        read = model.from_json(data)
    except (KeyError, TypeError, AttributeError) as error:
        return [f"unreadable: {error!r}"]
    written = json.loads(json.dumps(read, cls=JSONEncoder))
    return [*_lost(data, written, ""), *_mistyped(read, model, "")]


def _lost(data: Any, written: Any, path: str) -> list[str]:
    """Keys that Grafana's types don't have."""
    if isinstance(data, dict) and isinstance(written, dict):
        found = [f"{path}.{key}: unknown" for key in data.keys() - written.keys()]
        return found + [
            problem
            for key in data.keys() & written.keys()
            for problem in _lost(data[key], written[key], f"{path}.{key}")
        ]
    if isinstance(data, list) and isinstance(written, list):
        return [
            problem
            for index, (one, other) in enumerate(zip(data, written, strict=True))
            for problem in _lost(one, other, f"{path}[{index}]")
        ]
    return []


def _mistyped(value: Any, hint: Any, path: str) -> list[str]:
    """Values that are not what a class declares."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):  # a panel's options: the class that read them knows
        return _mistyped_object(value, type(value), path) if hasattr(value, "to_json") else []
    if hint is typing.Union or origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return []
        options = [option for option in arguments if option is not type(None)]
        if type(value) in options:
            options = [type(value)]
        return min((_mistyped(value, option, path) for option in options), key=len)
    if origin is typing.Literal:
        return [] if value in arguments else [f"{path}: {value!r} is none of {arguments}"]
    if origin is list:
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        return [
            p for i, item in enumerate(value) for p in _mistyped(item, arguments[0], f"{path}[{i}]")
        ]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is no object"]
        return [
            p for k, item in value.items() for p in _mistyped(item, arguments[1], f"{path}.{k}")
        ]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        allowed = [member.value for member in hint]
        return [] if value in allowed else [f"{path}: {value!r} is none of {allowed}"]
    if hasattr(hint, "to_json") or hasattr(value, "to_json"):
        return _mistyped_object(value, hint, path)
    if hint is float:
        hint = (int, float)
    if (isinstance(value, bool) and hint is not bool) or not isinstance(value, hint):
        return [f"{path}: {value!r} is no {hint}"]
    return []


def _mistyped_object(value: Any, hint: Any, path: str) -> list[str]:
    if isinstance(value, dict):  # some members are left as they came
        try:
            lost = _lost(
                value, json.loads(json.dumps(hint.from_json(value), cls=JSONEncoder)), path
            )
            return [*lost, *_mistyped_object(hint.from_json(value), hint, path)]
        except (KeyError, TypeError, AttributeError) as error:
            return [f"{path}: {error!r}"]
    if not isinstance(value, hint):
        return [f"{path}: {type(value).__name__} is no {hint.__name__}"]
    hints = _hints_of(type(value))
    return [
        problem
        for name, member in hints.items()
        for problem in _mistyped(getattr(value, name), member, f"{path}.{name}")
    ]


def _hints_of(model: Any) -> dict[str, Any]:
    return typing.get_type_hints(model, vars(sys.modules[model.__module__]))


def panels_of(data: dict[str, Any]) -> list[Panel]:
    """Read by Grafana's types, without the rows."""
    panels = Dashboard.from_json(data).panels or []
    assert all(isinstance(panel, Panel | RowPanel) for panel in panels)
    return [panel for panel in panels if isinstance(panel, Panel)]
