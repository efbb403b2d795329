"""What a client is told when something is wrong: a status, and one shape of body."""

import json
from collections.abc import AsyncIterator, Iterator

import httpx
import openai
import pytest
from starlette.types import Message
from transformers import PreTrainedTokenizerFast

from engine.errors import EngineDead, EngineFull, GrammarError, RequestError
from tests.deployments.api_app import COMPLETION, MAX_BODY_BYTES, App, assert_error, tokens
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


@pytest.fixture
def app(tokenizer: PreTrainedTokenizerFast) -> App:
    return App(tokenizer, tokens(tokenizer, "abc"))


@pytest.mark.parametrize(
    ("body", "code", "param", "says"),
    [
        (b"", "malformed_body", None, "not valid JSON"),
        (b'{"model": "tiny", "prompt": "a"', "malformed_body", None, "not valid JSON"),
        (b"[]", "malformed_body", None, "must be a JSON object"),
        (b"[" * 10_000, "malformed_body", None, "nested too deeply"),
        (b'{"model": "tiny", "prompt": "\\ud800"}', "invalid_value", "prompt", "Unicode"),
        (b'{"model": "tiny", "prompt": "a", "\\ud800": 1}', "invalid_value", '"\\ud800"', "not a"),
        (b'{"model": "tiny", "prompt": "a", "seed": 1e999}', "invalid_value", "seed", "seed"),
        (b'{"model": "tiny", "prompt": ""}', "invalid_value", "prompt", "must not be empty"),
        (b'{"model": "tiny", "prompt": "a", "n": 0}', "invalid_value", "n", "between 1 and 128"),
        (
            b'{"model": "tiny", "prompt": "a", "metadata": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
            "invalid_value",
            "metadata",
            "not supported",
        ),
        (
            b'{"model": "tiny", "prompt": "a", "max_tokens": -1}',
            "invalid_value",
            "max_tokens",
            "got -1",
        ),
        (
            b'{"model": "tiny", "prompt": "' + b"z1" * 90 + b'"}',
            "context_length_exceeded",
            "prompt",
            "context limit of 64 tokens",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_requests(
    app: App, body: bytes, code: str, param: str | None, says: str, stream: bool
) -> None:
    if stream:
        body = body.replace(b'"prompt"', b'"stream": true, "prompt"')
    response = await app.post("/v1/completions", content=body)
    assert_error(response, 400, code, param, says)
    assert app.loop.requests == []


async def test_a_client_that_leaves_while_it_sends_is_no_error(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    begun: Message = {"type": "http.request", "body": b"{", "more_body": True}
    messages: Iterator[Message] = iter([begun, {"type": "http.disconnect"}])
    sent: list[Message] = []

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    await app.asgi({**scope, "query_string": b"", "http_version": "1.1"}, receive, send)
    assert sent[0]["status"] == 499
    assert not caplog.records


async def test_any_content_type_will_do(app: App) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    content = json.dumps(COMPLETION | {"prompt": "a\0b"})
    response = await app.post("/v1/completions", content=content, headers=headers)
    assert response.status_code == 200


async def test_unknown_model_route_and_method(app: App) -> None:
    response = await app.post("/v1/completions", content=b'{"model": "\\ud83d", "prompt": "a"}')
    assert_error(response, 400, "invalid_value", "model", "Unicode")
    response = await app.post("/v1/completions", json=COMPLETION | {"model": "gpt"})
    assert_error(response, 404, "model_not_found", "model", '"gpt" is not served here')
    assert_error(await app.post("/nothing"), 404, None, None, "no POST /nothing here")
    response = await app.post("/health")
    assert_error(response, 405, None, None, "/health does not take POST")
    assert response.headers["allow"] == "GET"


@pytest.mark.parametrize(
    "body",
    [
        {"x" * 10_000: 1},
        {"policy": "x" * 10_000},
        {"policy": {"x" * 10_000: 1}},
        {"policy": {"table": {"x" * 10_000: 1}}},
        {"policy": {"table": {str(size): 1 for size in range(1, 1000)}}},
    ],
)
async def test_an_error_body_never_echoes_a_large_policy(app: App, body: object) -> None:
    async with app.client() as client:
        response = await client.put("/policy", json=body)
    assert response.status_code == 400
    assert len(response.content) < 400


async def test_an_error_body_never_echoes_a_long_path(app: App) -> None:
    response = await app.post("/" + "x" * 10_000)
    assert_error(response, 404, None, None, "there is no POST /xxx")
    assert len(response.content) < 400


async def test_a_large_body_is_refused_by_its_length(app: App) -> None:
    response = await app.post("/v1/completions", content=b"x" * (MAX_BODY_BYTES + 1))
    assert_error(response, 413, "body_too_large", None, f"the limit is {MAX_BODY_BYTES} bytes")


@pytest.mark.parametrize("num_bytes", [2 * 2**20, 20 * 2**20])
async def test_a_large_body_in_pieces_gets_its_answer(app: App, num_bytes: int) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(num_bytes // 2**16):
            yield b" " * 2**16

    async with app.served() as url, httpx.AsyncClient(base_url=url) as client:
        for content in (pieces(), b" " * num_bytes):
            response = await client.post("/v1/completions", content=content)
            assert_error(response, 413, "body_too_large", None, "the limit is")


async def test_a_body_of_the_largest_size_is_read(app: App) -> None:
    body = json.dumps(COMPLETION).encode()
    response = await app.post("/v1/completions", content=body.ljust(MAX_BODY_BYTES))
    assert response.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code", "says"),
    [
        (EngineFull("2 requests wait already"), 503, "engine_full", "2 requests wait already"),
        (EngineDead("a step failed"), 503, "engine_dead", "a step failed"),
        (RequestError("seed", "seed is odd"), 400, "invalid_value", "seed is odd"),
        (GrammarError("regex: too large"), 400, "invalid_value", "regex: too large"),
        (ZeroDivisionError("secret"), 500, "internal", "the server failed"),
    ],
)
async def test_errors_before_the_first_token_are_http_errors(
    tokenizer: PreTrainedTokenizerFast,
    error: Exception,
    status: int,
    code: str,
    says: str,
    stream: bool,
) -> None:
    app = App(tokenizer, [error])
    response = await app.post("/v1/completions", json=COMPLETION | {"stream": stream})
    assert_error(response, status, code, getattr(error, "field", None), says)
    assert ("retry-after" in response.headers) == (status == 503)
    assert "secret" not in response.text


@pytest.mark.parametrize("error", [EngineDead("a step failed"), ZeroDivisionError("secret")])
async def test_an_error_in_mid_stream_is_the_last_event(
    tokenizer: PreTrainedTokenizerFast, error: Exception
) -> None:
    app = App(tokenizer, [*tokens(tokenizer, "a")[:1], error])
    response = await app.post("/v1/completions", json=COMPLETION | {"stream": True})
    assert response.status_code == 200
    *_, last, nothing = response.text.split("\n\n")
    assert nothing == ""
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
    assert "secret" not in response.text
    assert "[DONE]" not in response.text

    async with app.openai() as client:
        stream = await client.completions.create(model="tiny", prompt="a", stream=True)
        with pytest.raises(openai.APIError):
            _ = [chunk async for chunk in stream]
