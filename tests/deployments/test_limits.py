"""Limits of one request, and refusals of a full engine, as clients see them."""

import pytest
from transformers import PreTrainedTokenizerFast

from deployments.limits import Limits
from engine.errors import EngineFull, OverShare
from tests.deployments.api_app import CHAT, COMPLETION, App, assert_error, tokens
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture
def app() -> App:
    tokenizer: PreTrainedTokenizerFast = byte_level_tokenizer()
    return App(tokenizer, tokens(tokenizer, "yes"))


async def test_each_limit_is_refused_by_name_and_its_edge_is_taken(app: App) -> None:
    prompt = COMPLETION | {"prompt": [5] * 8, "max_tokens": 4}
    prompts = prompt | {"prompt": [[5] * 8, [6] * 3]}
    for limits, body, param, code, says in (
        (Limits(max_prompt_tokens=7), prompt, "prompt", "context_length_exceeded", "8 tokens"),
        (Limits(max_n=2), prompt | {"n": 3}, "n", "invalid_value", "at most 2 here, got 3"),
        (Limits(max_total_tokens=23), prompt | {"n": 2}, "max_tokens", "invalid_value", "got 24"),
        (Limits(max_prompt_tokens=7), prompts, "prompt", "context_length_exceeded", "8 tokens"),
        (Limits(max_n=3), prompts | {"n": 2}, "prompt", "invalid_value", "3 choices here, got 2"),
        (Limits(max_total_tokens=37), prompts | {"n": 2}, "max_tokens", "invalid_value", "got 38"),
    ):
        app.service.limits = limits
        response = await app.post("/v1/completions", json=body)
        assert_error(response, 400, code, param, says)
    assert app.loop.requests == []
    app.service.limits = Limits(max_prompt_tokens=8, max_n=4, max_total_tokens=38)
    assert (await app.post("/v1/completions", json=prompts | {"n": 2})).status_code == 200
    app.service.limits = Limits(max_prompt_tokens=8, max_n=2, max_total_tokens=24)
    assert (await app.post("/v1/completions", json=prompt | {"n": 2})).status_code == 200
    app.service.limits = Limits(max_total_tokens=10)
    for path, more, param in (
        ("chat/completions", CHAT | {"max_tokens": 9}, "max_tokens"),
        ("chat/completions", CHAT | {"max_completion_tokens": 9}, "max_completion_tokens"),
        ("responses", {"model": "tiny", "input": "a", "max_output_tokens": 9}, "max_output_tokens"),
    ):
        response = await app.post(f"/v1/{path}", json=more)
        assert_error(response, 400, "invalid_value", param, f"n x (prompt + {param})")
    app.service.limits = Limits(max_prompt_tokens=1)
    response = await app.post("/v1/chat/completions", json=CHAT)
    assert_error(response, 400, "context_length_exceeded", "messages", "the limit here is 1")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_engine_tells_when_to_come_again(stream: bool) -> None:
    tokenizer = byte_level_tokenizer()
    for error, status, code in (
        (EngineFull("full", 17), 503, "engine_full"),
        (OverShare("too much of yours", 17), 429, "over_share"),
    ):
        app = App(tokenizer, [error])
        response = await app.post("/v1/completions", json=COMPLETION | {"stream": stream})
        assert_error(response, status, code, None, str(error))
        assert response.headers["Retry-After"] == "17"
