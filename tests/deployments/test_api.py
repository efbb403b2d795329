"""The HTTP surface, with the real client where it matters: shapes, streams, errors, hang-ups."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from fastapi import FastAPI
from transformers import PreTrainedTokenizerFast

from deployments.api import create_api
from deployments.service import GenerationService
from engine.errors import EngineDead, EngineFull, PacelineError, RequestError
from engine.request import FinishReason
from policy.choice import parse_choice
from tests.deployments.fake_loop import FakeLoop, Step
from tests.tiny_tokenizer import byte_level_tokenizer

MAX_BODY_BYTES = 20_000
HELLO = [{"role": "user", "content": "hello"}]
COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "The"}


class PolicyLost(PacelineError):
    pass


class FakePolicy:
    def __init__(self) -> None:
        self.is_lost = False
        self.now: object = "off"

    async def get(self) -> dict[str, Any]:
        return {"table": {"version": 1, "policy": self.now}, "replicas": []}

    async def set(self, policy: object) -> dict[str, Any]:
        if self.is_lost:
            raise PolicyLost("the policy actor does not answer")
        try:
            parse_choice(policy)
        except ValueError as error:
            raise RequestError("policy", f"policy: {error}") from None
        self.now = policy
        return await self.get()

    def heard_s_ago(self) -> float | None:
        return 0.5


class App:
    def __init__(self, tokenizer: PreTrainedTokenizerFast, steps: Sequence[Step]) -> None:
        self.loop = FakeLoop(steps)
        self.policy = FakePolicy()
        service = GenerationService(
            self.loop, tokenizer, "tiny", max_model_len=64, vocab_size=len(tokenizer)
        )
        self.asgi: FastAPI = create_api(
            lambda: service, lambda: self.policy, max_body_bytes=MAX_BODY_BYTES
        )

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.asgi), base_url="http://replica"
        )

    async def post(self, path: str, **kwargs: Any) -> httpx.Response:
        async with self.client() as client:
            return await client.post(path, **kwargs)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """The app under a real uvicorn on the loopback; gives its URL."""
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            bound.listen()
            config = uvicorn.Config(self.asgi, log_config=None, lifespan="off", ws="none")
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[bound]))
            try:
                yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            finally:
                server.should_exit = True
                await serving

    @asynccontextmanager
    async def openai(self) -> AsyncIterator[openai.AsyncOpenAI]:
        async with (
            self.served() as url,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


def tokens(tokenizer: PreTrainedTokenizerFast, text: str) -> list[Step]:
    """One step for each token, then EOS."""
    encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*((token_id,) for token_id in encoded), (1,), FinishReason.STOP]


@pytest.fixture
def app(tokenizer: PreTrainedTokenizerFast) -> App:
    return App(tokenizer, tokens(tokenizer, "Héllo 🙂 wörld"))


def assert_error(
    response: httpx.Response, status: int, code: str | None, param: str | None, says: str
) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert says in error["message"]


async def test_openai_client_whole_answers(app: App) -> None:
    async with app.openai() as client:
        completion = await client.completions.create(model="tiny", prompt="The", max_tokens=40)
        assert completion.choices[0].text == "Héllo 🙂 wörld"
        assert completion.choices[0].finish_reason == "stop"
        assert completion.usage is not None
        assert completion.usage.completion_tokens_details is not None
        chat = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hello"}],
            max_completion_tokens=2,
        )
        assert chat.choices[0].message.role == "assistant"
        assert chat.choices[0].finish_reason == "length"
        assert chat.usage is not None
        assert chat.usage.completion_tokens == 2


async def test_openai_client_streams(app: App) -> None:
    async with app.openai() as client:
        stream = await client.completions.create(
            model="tiny", prompt="The", max_tokens=40, stream=True
        )
        texts = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].text for chunk in texts) == "Héllo 🙂 wörld"
        assert texts[-1].choices[0].finish_reason == "stop"
        assert all(chunk.usage is None for chunk in texts)

        chat = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hello"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in chat]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [c.choices[0].delta.role for c in chunks[1:-1]] == [None] * (len(chunks) - 2)
        text = "".join(c.choices[0].delta.content or "" for c in chunks[:-1])
        assert text == "Héllo 🙂 wörld"
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens > chunks[-1].usage.prompt_tokens
        assert len({chunk.id for chunk in chunks}) == 1


async def test_openai_client_models_and_errors(app: App) -> None:
    async with app.openai() as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        assert (await client.models.retrieve("tiny")).owned_by == "paceline"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("org/other")
        with pytest.raises(openai.BadRequestError, match="temperature must be between 0 and 2"):
            await client.completions.create(model="tiny", prompt="a", temperature=3)
        with pytest.raises(openai.NotFoundError, match="is not served here"):
            await client.completions.create(model="gpt", prompt="a")


async def test_events_of_a_stream(app: App) -> None:
    response = await app.post("/v1/completions", json=COMPLETION | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") and "\n" not in event for event in events[:-1])
    assert response.text.isascii()


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
        (b'{"model": "tiny", "prompt": "a", "n": 2}', "invalid_value", "n", "not supported yet"),
        (
            b'{"model": "tiny", "prompt": "a", "metadata": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
            "invalid_value",
            "metadata",
            "not supported yet",
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
    assert_error(response, status, code, "seed" if status == 400 else None, says)
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


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_tokens_before", [0, 1])
async def test_a_client_that_hangs_up_ends_the_engines_work(
    tokenizer: PreTrainedTokenizerFast, stream: bool, num_tokens_before: int
) -> None:
    app = App(tokenizer, [*tokens(tokenizer, "a")[:num_tokens_before], asyncio.Event()])
    body = json.dumps(COMPLETION | {"stream": stream}).encode()
    async with app.served() as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await app.loop.started.wait()
        if stream and num_tokens_before:
            await reader.readuntil(b"data: ")
        writer.close()
        await app.loop.closed.wait()
        assert app.loop.num_open == 0


async def test_cancelling_the_handler_ends_the_engines_work(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    for stream in (False, True):
        app = App(tokenizer, [*tokens(tokenizer, "a")[:1], asyncio.Event()])
        asking = asyncio.create_task(
            app.post("/v1/completions", json=COMPLETION | {"stream": stream})
        )
        await app.loop.started.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert app.loop.num_open == 0


async def test_health(app: App) -> None:
    async with app.client() as client:
        health = (await client.get("/health")).json()
        assert health["status"] == "ok"
        assert health["engine"]["num_free_blocks"] == 60
        assert health["table"] == {"version": 3, "draft_len": 4, "heard_s_ago": 0.5}
        app.loop.death = EngineDead("step 17 failed")
        assert_error(await client.get("/health"), 503, "engine_dead", None, "step 17 failed")


async def test_policy(app: App) -> None:
    async with app.client() as client:
        policy: object
        for policy in ("off", {"fixed": 4}, {"table": {"1": 5, "8": 2}}):
            response = await client.put("/policy", json={"policy": policy})
            assert response.json()["table"]["policy"] == policy
            assert (await client.get("/policy")).json() == response.json()
        for body, param, says in (
            ({}, "policy", "policy is required"),
            ({"policy": "fast"}, "policy", "'fast'"),
            ({"policy": {"fixed": -1}}, "policy", "got -1"),
            ({"policy": {"table": {"0": 2}}}, "policy", "got 0"),
            ({"policy": "off", "when": 1}, "when", "not a field"),
        ):
            response = await client.put("/policy", json=body)
            assert_error(response, 400, "invalid_value", param, says)
        response = await client.put("/policy", content=b"off")
        assert_error(response, 400, "malformed_body", None, "not valid JSON")
        app.policy.is_lost = True
        response = await client.put("/policy", json={"policy": "off"})
        assert_error(response, 503, "unavailable", None, "the policy actor does not answer")


async def test_the_documentation_shows_the_requests(app: App) -> None:
    async with app.client() as client:
        assert (await client.get("/docs")).status_code == 200
        schema = (await client.get("/openapi.json")).json()
    post = schema["paths"]["/v1/chat/completions"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["model", "messages"]
    assert body["properties"]["messages"]["items"]["properties"]["role"]["enum"]
    assert "$ref" not in json.dumps(body)
