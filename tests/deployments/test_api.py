"""The HTTP surface, with the real client where it matters: shapes, streams, hang-ups."""

import asyncio
import json

import openai
import pytest
from transformers import PreTrainedTokenizerFast

from engine.errors import EngineDead
from tests.deployments.api_app import COMPLETION, App, assert_error, tokens
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


@pytest.fixture
def app(tokenizer: PreTrainedTokenizerFast) -> App:
    return App(tokenizer, tokens(tokenizer, "Héllo 🙂 wörld"))


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


async def test_prometheus_is_told_where_the_metrics_are(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    app = App(tokenizer, [], metric_addresses=("10.0.0.1:8080", "10.0.0.2:8080"))
    async with app.client() as client:
        found = (await client.get("/metrics/targets")).json()
    assert found == [{"targets": ["10.0.0.1:8080", "10.0.0.2:8080"], "labels": {}}]


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


async def test_the_policy_is_explained_for_a_batch_size(app: App) -> None:
    async with app.client() as client:
        for asked in ("8", "008", str(2**31 - 1)):
            response = await client.get("/policy/explain", params={"batch_size": asked})
            assert response.json() == {"text": f"at batch {int(asked)}"}
        for bad in ("0", "-1", "1.5", "", "x", "\u0663", str(2**31), "9" * 5000):
            response = await client.get("/policy/explain", params={"batch_size": bad})
            says = "batch_size must be a whole number from 1 to 2147483647, got"
            assert_error(response, 400, "invalid_value", "batch_size", says)
            assert len(response.json()["error"]["message"]) < 200
        response = await client.get("/policy/explain")
        assert_error(response, 400, "invalid_value", "batch_size", "batch_size is required")
        app.policy.is_lost = True
        response = await client.get("/policy/explain", params={"batch_size": 8})
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


async def test_the_documentation_shows_the_errors(app: App) -> None:
    async with app.client() as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses"):
        post = paths[path]["post"]
        assert set(post["responses"]) == {
            "200",
            "400",
            "401",
            "404",
            "408",
            "413",
            "429",
            "500",
            "503",
        }
        assert "text/event-stream" in post["responses"]["200"]["content"]
        fields = post["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert {"timeout", "include_speculation_metrics"} <= set(fields)
    for path in ("/tokenize", "/detokenize"):
        assert set(paths[path]["post"]["responses"]) == {
            "200",
            "400",
            "401",
            "404",
            "413",
            "500",
        }
