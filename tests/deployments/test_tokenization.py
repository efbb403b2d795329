"""/tokenize and /detokenize: the tokens that a request would be made of, and back."""

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from tests.deployments.api_app import CHAT, COMPLETION, MAX_BODY_BYTES, App, assert_error, tokens
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


@pytest.fixture
def app(tokenizer: PreTrainedTokenizerFast) -> App:
    return App(tokenizer, tokens(tokenizer, "a"))


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]
)
async def test_the_tokens_are_those_that_the_engine_is_given(
    app: App, path: str, body: dict[str, Any]
) -> None:
    await app.post(path, json=body)
    answer = (await app.post("/tokenize", json=body)).json()
    assert answer["tokens"] == list(app.loop.requests[0].prompt_token_ids)
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 64


async def test_without_the_answers_beginning(app: App) -> None:
    whole = (await app.post("/tokenize", json=CHAT)).json()["tokens"]
    bare = (await app.post("/tokenize", json=CHAT | {"add_generation_prompt": False})).json()
    assert bare["tokens"] == whole[: bare["count"]]
    assert bare["count"] < len(whole)


async def test_there_and_back(app: App) -> None:
    text = "Héllo 🙂 " * 200  # longer than what is done on the event loop, and than the context
    body = {"prompt": text, "add_special_tokens": False}
    ids = (await app.post("/tokenize", json=body)).json()["tokens"]
    assert (await app.post("/detokenize", json={"tokens": ids})).json() == {"prompt": text}
    assert (await app.post("/detokenize", json={"tokens": []})).json() == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        ("/tokenize", {}, "prompt", "exactly one"),
        ("/tokenize", {"prompt": "a", "messages": CHAT["messages"]}, "prompt", "exactly one"),
        ("/tokenize", {"prompt": 1}, "prompt", "must be a string"),
        ("/tokenize", {"messages": []}, "messages", "must not be empty"),
        ("/tokenize", {"messages": [{"role": "x"}]}, "messages[0].role", "must be"),
        (
            "/tokenize",
            {"prompt": "a", "add_generation_prompt": True},
            "add_generation_prompt",
            "for messages only",
        ),
        (
            "/tokenize",
            CHAT | {"add_special_tokens": False},
            "add_special_tokens",
            "for a prompt only",
        ),
        ("/tokenize", {"prompt": "a", "tools": []}, "tools", "not a field"),
        ("/detokenize", {}, "tokens", "is required"),
        ("/detokenize", {"tokens": "a"}, "tokens", "list of token ids"),
        ("/detokenize", {"tokens": [True]}, "tokens", "list of token ids"),
        ("/detokenize", {"tokens": [5, -1]}, "tokens", "tokens[1] must be a token id"),
        ("/detokenize", {"tokens": [10**9]}, "tokens", "got 1000000000"),
    ],
)
async def test_what_is_wrong_is_named(
    app: App, path: str, body: dict[str, Any], param: str, says: str
) -> None:
    assert_error(await app.post(path, json=body), 400, "invalid_value", param, says)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_limits_are_the_apis(app: App, path: str) -> None:
    response = await app.post(path, content=b" " * (MAX_BODY_BYTES + 1))
    assert_error(response, 413, "body_too_large", None, "the limit is")
    fields = {"model": "other", **({"prompt": "a"} if path == "/tokenize" else {"tokens": [1]})}
    response = await app.post(path, json=fields)
    assert_error(response, 404, "model_not_found", "model", "is not served here")
