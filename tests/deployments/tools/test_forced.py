"""Forced calls: the grammar's schema, and the reading of what it lets through."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from deployments.tools.events import CallArguments, CallStarted
from deployments.tools.families import HERMES
from deployments.tools.forced import forced_arguments_of, read_forced_calls
from deployments.tools.grammar import forced_grammar
from tests.deployments.tools.replies import parser_of, read_reply, read_whole
from tests.deployments.tools.tool_requests import (
    NAMED_NOW,
    NOW,
    WEATHER,
    function,
    offer,
    refusal,
    some_offer,
)

TREE = {
    "type": "object",
    "properties": {
        "root": {"$ref": "#/$defs/node"},
        "same": {"$ref": "#/properties/root"},
        "more": {"$ref": "#"},
        "word": {"$ref": "#/definitions/a~1b%20c"},
        "second": {"$ref": "#/properties/either/anyOf/1"},
        "either": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        "$ref": {"const": {"$ref": "#/nowhere"}},
    },
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}},
            "additionalProperties": False,
        }
    },
    "definitions": {"a/b c": {"type": "string"}},
}
# Under another name, the same reference leads to something else.
OTHER = TREE | {"$defs": {"node": {"type": "string"}}}
TREES = [function(name="tree", parameters=TREE), function(name="other", parameters=OTHER)]
VALID: list[Any] = [
    {},
    {"root": {"value": 1, "next": {"next": {"value": 2}}}, "same": {"value": 3}},
    {"more": {"more": {"word": "x"}}, "second": True, "$ref": {"$ref": "#/nowhere"}},
]
INVALID: list[Any] = [
    {"root": {"next": {"value": "x"}}},
    {"same": {"x": 1}},
    {"more": {"more": {"word": 1}}},
    {"second": None},
    {"$ref": 1},
    [],
    "x",
]


def accepts(schema: Any, value: object) -> bool:
    jsonschema.Draft202012Validator.check_schema(schema)
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def schema_of(**fields: Any) -> Any:
    spec = some_offer(**fields).grammar()
    assert spec is not None
    assert spec.kind == "json_schema"
    return json.loads(spec.source)


def test_a_named_function_is_called_with_its_parameters() -> None:
    choice = {"type": "function", "function": {"name": "tree"}}
    schema = schema_of(tools=[NOW, *TREES], tool_choice=choice)
    assert all(accepts(schema, value) for value in VALID)
    assert not any(accepts(schema, value) for value in INVALID)


def test_required_calls_are_a_list_of_any() -> None:
    schema = schema_of(tools=[NOW, *TREES], tool_choice="required")
    for value in VALID:
        assert accepts(schema, [{"name": "tree", "arguments": value}])
    for value in INVALID:
        assert not accepts(schema, [{"name": "tree", "arguments": value}])
    assert accepts(schema, [{"name": "other", "arguments": {"root": "x"}}])
    assert not accepts(schema, [{"name": "other", "arguments": {"root": {}}}])
    now = {"name": "now", "arguments": {}}
    assert accepts(schema, [now, now])
    for calls in (
        *([], now, [{"name": "now"}], [{"name": "later", "arguments": {}}]),
        *([now | {"x": 1}], [{"name": "now", "arguments": {"x": 1}}]),
    ):
        assert not accepts(schema, calls)


def test_names_come_before_arguments() -> None:
    for call in schema_of(tools=[NOW, WEATHER], tool_choice="required")["items"]["anyOf"]:
        assert list(call["properties"]) == ["name", "arguments"]


def test_one_call_where_parallel_ones_are_not_wanted() -> None:
    schema = schema_of(tools=[NOW], tool_choice="required", parallel_tool_calls=False)
    now = {"name": "now", "arguments": {}}
    assert accepts(schema, [now])
    assert not accepts(schema, [now, now])


@pytest.mark.parametrize("parameters", [{}, {"properties": {}}, {"minProperties": 0}])
def test_arguments_are_an_object_whatever_the_schema_says(parameters: dict[str, Any]) -> None:
    tool = function(name="now", parameters=parameters)
    schema = schema_of(tools=[tool], tool_choice=NAMED_NOW)
    assert accepts(schema, {})
    assert not accepts(schema, 5)


def test_strict_can_be_promised_under_a_grammar() -> None:
    tool = function(name="now", strict=True)
    assert offer(tools=[tool], tool_choice=NAMED_NOW)
    assert offer(tools=[tool], tool_choice="required")


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/x", "#/properties/b/1", "#node", "https://example.org/x", "/properties", "", 5],
)
@pytest.mark.parametrize("choice", ["required", NAMED_NOW])
def test_references_that_lead_nowhere(reference: object, choice: object) -> None:
    parameters = {"properties": {"a": {"$ref": reference}, "b": True}}
    offered = some_offer(
        tools=[WEATHER, function(name="now", parameters=parameters)], tool_choice=choice
    )
    error = refusal(offered.grammar)
    assert error.field == "tools[1].function.parameters"
    assert str(error).endswith(f"got {json.dumps(reference)}")


def test_equal_offers_share_a_grammar() -> None:
    def grammar() -> object:
        offered = some_offer(tools=[WEATHER, *TREES], tool_choice="required")
        return forced_grammar(offered.tools, "required", True)

    assert grammar() == grammar()


def test_a_forced_reply_is_read() -> None:
    named = some_offer(tools=[NOW, WEATHER], tool_choice=NAMED_NOW).parser(HERMES, "reply")
    started, arguments = named.push(' {"a": ')
    assert isinstance(started, CallStarted)
    assert (started.index, started.name) == (0, "now")
    assert arguments == CallArguments(0, '{"a": ')
    assert named.push("[]}") == [CallArguments(0, "[]}")]
    assert named.finish() == []

    required = some_offer(tools=[NOW, WEATHER], tool_choice="required").parser(HERMES, "reply")
    text = '[{"name": "now", "arguments": {}}, {"name": "get_weather", "arguments": {"city": "P"}}]'
    required.push(text)
    assert required.num_calls == 2

    one = some_offer(tools=[NOW], tool_choice="required", parallel_tool_calls=False).parser(
        HERMES, "reply"
    )
    one.push('[{"name": "now", "arguments": {}}')
    assert one.is_done


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('[{"name":"now","arguments":{}}]', "", [("now", "{}")]),
        ('\n[ {"name":"now","arguments":{"a":[1]}} ,\n{"name":"search","arguments":{}} ]\n', "", 2),
        ('[{"name":"now","arguments":{"a":', "", [("now", '{"a":')]),
        ('[{"name":"now","arguments":{}},', "", [("now", "{}")]),
        ('[{"name":"now","arguments":{}},{"na', ',{"na', [("now", "{}")]),
        ('[{"na', '[{"na', []),
        ("No.", "No.", []),
        ('[{"name":"now","arguments":{}}] So.', " So.", [("now", "{}")]),
    ],
)
def test_a_forced_list(text: str, content: str, calls: Any) -> None:
    read = read_reply(read_forced_calls, text)
    assert read.content == content
    assert read.calls == calls or len(read.calls) == calls
    assert read == read_whole(read_forced_calls, text)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('{"a": "\\u00e9"}', "", [("now", '{"a": "\\u00e9"}')]),
        (' {"a": 1} \n', "", [("now", '{"a": 1}')]),
        ('{"a": 1', "", [("now", '{"a": 1')]),
        ('{"a" 1} x', "1} x", [("now", '{"a" ')]),
        (" ", " ", []),
        (" x{}", " x{}", []),
    ],
)
def test_forced_arguments(text: str, content: str, calls: Any) -> None:
    layout = forced_arguments_of("now")
    read = read_reply(layout, text)
    assert (read.content, read.calls) == (content, calls)
    assert read == read_whole(layout, text)
    assert parser_of(layout).num_calls == 0
