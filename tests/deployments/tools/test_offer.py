"""Tools and tool_choice: what they come to, and what is refused by name."""

from typing import Any

import pytest

from deployments.tools.families import HERMES, MISTRAL
from tests.deployments.tools.tool_requests import (
    NAMED_NOW,
    NOW,
    WEATHER,
    function,
    offer,
    refusal,
    some_offer,
)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": None, "tool_choice": None, "parallel_tool_calls": None},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False},
        {"tool_choice": "none"},
        {"tools": [NOW], "tool_choice": "none"},
        {"tools": [function(strict=True)], "tool_choice": "none"},
    ],
)
def test_nothing_is_offered(fields: dict[str, Any]) -> None:
    assert offer(**fields) is None


def test_a_choice_left_out_is_the_models() -> None:
    assert some_offer(tools=[NOW]) == some_offer(tools=[NOW], tool_choice="auto")
    assert some_offer(tools=[NOW]).grammar() is None
    assert some_offer(tools=[NOW]).parallel
    assert some_offer(tools=[NOW], parallel_tool_calls=True).parallel
    assert not some_offer(tools=[NOW], parallel_tool_calls=False).parallel


def test_templates_get_descriptions_and_properties_in_any_case() -> None:
    offered = some_offer(tools=[WEATHER, NOW, function(parameters={"$defs": {}}, strict=False)])
    weather, now, other = offered.for_template()
    assert weather == WEATHER
    assert now["function"] == {
        "name": "now",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }
    assert other["function"]["parameters"] == {"type": "object", "properties": {}, "$defs": {}}


@pytest.mark.parametrize(
    ("tools", "field", "complaint"),
    [
        ("x", "tools", "must be a list"),
        (["x"], "tools[0]", "must be an object"),
        ([{}], "tools[0].type", "is required"),
        ([{"type": "function"}], "tools[0].function", "is required"),
        ([{"type": "custom", "function": {}}], "tools[0].type", "must be 'function', got"),
        ([NOW, function(name="")], "tools[1].function.name", "must be 1 to 64 ASCII"),
        ([function(name="a b")], "tools[0].function.name", 'or -, got "a b"'),
        ([function(name="x\n")], "tools[0].function.name", "must be 1 to 64 ASCII"),
        ([function(name="é")], "tools[0].function.name", "must be 1 to 64 ASCII"),
        ([function(name="x" * 65)], "tools[0].function.name", "must be 1 to 64 ASCII"),
        ([NOW, NOW], "tools[1].function.name", 'must differ from the names before it, got "now"'),
        ([function(description=5)], "tools[0].function.description", "must be a string, got 5"),
        ([function(description="\ud800")], "tools[0].function.description", "must be valid Uni"),
        ([function(parameters=[])], "tools[0].function.parameters", "must be a JSON schema"),
        (
            [function(parameters={"type": "array"})],
            "tools[0].function.parameters",
            'must be a JSON schema of type "object", got {"type": "array"}',
        ),
        (
            [function(parameters={"title": "\ud800"})],
            "tools[0].function.parameters",
            "must be valid Unicode",
        ),
        ([function(parameters={"\udfff": 1})], "tools[0].function.parameters", "must be valid Uni"),
        ([function(parameters={"a": object()})], "tools[0].function.parameters", "must be JSON"),
        (
            [function(parameters={"a": [float("inf")]})],
            "tools[0].function.parameters",
            "must hold finite",
        ),
        ([function(strict=1)], "tools[0].function.strict", "must be true or false, got 1"),
        ([function(extra=1)], "tools[0].function.extra", "is not a field"),
        ([NOW | {"extra": 1}], "tools[0].extra", "is not a field"),
        ([NOW, function(strict=True)], "tools[1].function.strict", "can be true only where"),
    ],
)
def test_tools_that_are_refused(tools: object, field: str, complaint: str) -> None:
    error = refusal(offer, tools=tools)
    assert error.field == field
    assert str(error).startswith(f"{field} {complaint}") or complaint in str(error)


def test_parameters_may_not_be_nested_without_end() -> None:
    parameters: dict[str, Any] = {}
    for _ in range(63):
        parameters = {"not": parameters}
    assert some_offer(tools=[function(parameters=parameters)])
    error = refusal(offer, tools=[function(parameters={"not": parameters})])
    assert str(error).startswith(
        "tools[0].function.parameters must be nested at most 64 levels deep, got {"
    )


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        ("any", 'must be "none", "auto", "required" or {'),
        (5, 'must be "none", "auto", "required" or {'),
        ({"type": "function"}, 'must be "none", "auto", "required" or {'),
        (NAMED_NOW | {"extra": 1}, 'must be "none", "auto", "required" or {'),
        ({"type": "function", "function": {"name": "now", "x": 1}}, 'must be "none", "auto"'),
        ({"type": "function", "function": {"name": 5}}, "must be 1 to 64 ASCII"),
        ({"type": "function", "function": {"name": "later"}}, "must name a function of tools"),
    ],
)
def test_choices_that_are_refused(choice: object, complaint: str) -> None:
    error = refusal(offer, tools=[NOW], tool_choice=choice)
    assert error.field == "tool_choice"
    assert str(error).startswith(f"tool_choice {complaint}")


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("choice", ["required", NAMED_NOW])
def test_a_forced_call_needs_tools(tools: object, choice: object) -> None:
    assert refusal(offer, tools=tools, tool_choice=choice).field == "tool_choice"


def test_parallel_is_a_bool() -> None:
    assert refusal(offer, tools=[NOW], parallel_tool_calls=1).field == "parallel_tool_calls"


def test_the_parser_knows_the_functions_and_how_many_calls_may_come() -> None:
    text = '<tool_call>{"name": "now"}</tool_call>' * 2
    several = some_offer(tools=[NOW]).parser(HERMES, "reply")
    several.push(text)
    assert (several.num_calls, several.is_done) == (2, False)
    one = some_offer(tools=[NOW], parallel_tool_calls=False).parser(HERMES, "reply")
    one.push(text)
    assert (one.num_calls, one.is_done) == (1, True)
    unknown = some_offer(tools=[WEATHER]).parser(HERMES, "reply")
    unknown.push(text)
    assert unknown.num_calls == 0


def test_ids_have_the_familys_form() -> None:
    for family, text, length in [
        (HERMES, '<tool_call>{"name": "now"}', len("call_") + 24),
        (MISTRAL, "[TOOL_CALLS]now[ARGS]{}", 9),
    ]:
        ids = set()
        for reply in ("a", "b", "c", "a"):
            started, *_ = some_offer(tools=[NOW]).parser(family, reply).push(text)
            ids.add(getattr(started, "id", ""))
        assert len(ids) == 3, "who goes on with a reply gives its calls the same ids"
        assert {len(call_id) for call_id in ids} == {length}
        assert all(call_id.replace("_", "").isalnum() for call_id in ids)
