"""response_format and structured_outputs: one grammar, and the field that asks for it."""

import json
from typing import Any

import pytest

from engine.request import GrammarSpec
from tests.deployments.requests import chat, completion, refusal

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


def json_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA} | fields}


@pytest.mark.parametrize(
    ("fields", "field", "spec"),
    [
        (
            {"response_format": {"type": "json_object"}},
            "response_format",
            GrammarSpec("json_object"),
        ),
        (
            {"response_format": json_schema(strict=True, description="An answer.")},
            "response_format.json_schema.schema",
            GrammarSpec("json_schema", json.dumps(SCHEMA)),
        ),
        (
            {"structured_outputs": {"json": SCHEMA}},
            "structured_outputs.json",
            GrammarSpec("json_schema", json.dumps(SCHEMA)),
        ),
        (
            {"structured_outputs": {"json": '{"type": "null"}'}},
            "structured_outputs.json",
            GrammarSpec("json_schema", '{"type": "null"}'),
        ),
        (
            {"structured_outputs": {"regex": "a+", "choice": None}},
            "structured_outputs.regex",
            GrammarSpec("regex", "a+"),
        ),
        (
            {"structured_outputs": {"choice": ["yes", "no"]}},
            "structured_outputs.choice",
            GrammarSpec("choice", '["yes", "no"]'),
        ),
        (
            {"structured_outputs": {"grammar": 'root ::= "a"'}},
            "structured_outputs.grammar",
            GrammarSpec("grammar", 'root ::= "a"'),
        ),
    ],
)
@pytest.mark.parametrize("parse", [completion, chat])
def test_what_is_asked_for(parse: Any, fields: Any, field: str, spec: GrammarSpec) -> None:
    asked = parse(**fields).grammar
    assert (asked.field, asked.spec) == (field, spec)


def test_plain_text_asks_for_nothing() -> None:
    assert chat(response_format={"type": "text"}).grammar is None
    assert chat().grammar is None


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("json", "response_format"),
        ({}, "response_format.type"),
        ({"type": "xml"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        (
            {"type": "json_object", "json_schema": json_schema()["json_schema"]},
            "response_format.json_schema",
        ),
        ({"type": "json_object", "x": 1}, "response_format.x"),
        (
            {"type": "json_schema", "json_schema": {"name": "a"}},
            "response_format.json_schema.schema",
        ),
        (json_schema(name="two words"), "response_format.json_schema.name"),
        (json_schema(name="a" * 65), "response_format.json_schema.name"),
        (json_schema(schema=[]), "response_format.json_schema.schema"),
        (json_schema(schema={"a": float("inf")}), "response_format.json_schema.schema"),
        (json_schema(strict="yes"), "response_format.json_schema.strict"),
    ],
)
def test_bad_response_formats(value: object, field: str) -> None:
    error = refusal(chat, response_format=value)
    assert error.field == field
    assert str(error).startswith(field)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("a+", "structured_outputs"),
        ({}, "structured_outputs"),
        ({"regex": "a", "choice": ["a"]}, "structured_outputs"),
        ({"json": 5}, "structured_outputs.json"),
        ({"regex": 5}, "structured_outputs.regex"),
        ({"choice": []}, "structured_outputs.choice"),
        ({"choice": "a"}, "structured_outputs.choice"),
        ({"choice": [""]}, "structured_outputs.choice"),
        ({"structural_tag": "a"}, "structured_outputs.structural_tag"),
    ],
)
def test_bad_structured_outputs(value: object, field: str) -> None:
    error = refusal(completion, structured_outputs=value)
    assert error.field == field
    assert str(error).startswith(field)


def test_the_two_together_are_refused() -> None:
    fields = {"structured_outputs": {"regex": "a"}, "response_format": {"type": "text"}}
    assert refusal(chat, **fields).field == "structured_outputs"


def test_tools_that_may_be_called_leave_no_room_for_another_form() -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    fields = {"tools": tools, "response_format": {"type": "json_object"}}
    assert refusal(chat, **fields).field == "response_format"
    assert chat(**fields, tool_choice="none").grammar is not None


def test_calls_that_must_come_are_a_grammar() -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    assert chat(tools=tools).grammar is None
    asked = chat(tools=tools, tool_choice="required").grammar
    assert asked is not None
    assert (asked.field, asked.spec.kind) == ("tools", "json_schema")
    assert refusal(chat, tools=tools, tool_choice="required", ignore_eos=True).field == "ignore_eos"
