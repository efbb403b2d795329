"""Grammars over the API: compiled before the request is added, refused by field."""

import json
from typing import Any

import pytest
from pydantic import BaseModel
from transformers import PreTrainedTokenizerFast

from engine.errors import GrammarError
from engine.request import FinishReason, GrammarSpec, TokenDelta
from tests.deployments.api_app import CHAT, COMPLETION, App, assert_error, tokens

SCHEMA: dict[str, Any] = {"schema": {}}


class Fox(BaseModel):
    name: str
    legs: int


async def test_openai_client_parses_the_answer(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, tokens(tokenizer, '{"name": "Bo", "legs": 4}'))
    async with app.openai() as client:
        answer = await client.chat.completions.parse(
            model="tiny", messages=[{"role": "user", "content": "hello"}], response_format=Fox
        )
    assert answer.choices[0].message.parsed == Fox(name="Bo", legs=4)
    (request,) = app.loop.requests
    assert request.sampling.grammar in app.loop.compiled
    assert request.sampling.grammar is not None
    assert list(json.loads(request.sampling.grammar.source)["properties"]) == ["name", "legs"]


async def test_a_finished_grammar_shows_its_last_token(tokenizer: PreTrainedTokenizerFast) -> None:
    (last,) = tokenizer("s", add_special_tokens=False)["input_ids"]
    app = App(tokenizer, [TokenDelta("", (last,), FinishReason.STOP)])
    answer = await app.completion(structured_outputs={"choice": ["s"]})
    assert answer["choices"][0]["text"] == "s"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert app.loop.compiled == [GrammarSpec("choice", '["s"]')]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {}},
                }
            },
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs.regex"),
    ],
)
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]
)
async def test_a_bad_grammar_is_refused_by_its_field(
    tokenizer: PreTrainedTokenizerFast,
    path: str,
    body: dict[str, Any],
    fields: dict[str, Any],
    param: str,
) -> None:
    app = App(tokenizer, [])
    app.loop.refuses_grammars = GrammarError("regex: unclosed group")
    response = await app.post(path, json=body | fields)
    assert_error(response, 400, "invalid_value", param, f"{param} can't be enforced: regex: uncl")
    assert app.loop.requests == []
