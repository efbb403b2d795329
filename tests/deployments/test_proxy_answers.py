"""Serve's proxy speaks for itself at times; clients hear the API's own words all the same."""

from typing import Any

import httpx
import pytest
from ray.serve._private.common import DeploymentID
from ray.serve._private.http_util import convert_object_to_asgi_messages
from ray.serve.exceptions import DeploymentUnavailableError
from starlette.types import Message, Receive, Scope, Send

from deployments.proxy_answers import around_proxy

GONE = "Path '/v1/models' not found. Ping http://.../-/routes for available routes."
FAILED = DeploymentUnavailableError(DeploymentID("paceline", "paceline")).message


async def answer_of(messages: list[Message], path: str = "/v1/models") -> httpx.Response:
    """What comes through when the proxy itself sends this."""

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    app: Any = proxy
    for middleware in around_proxy():  # as Serve does: the last one is the outermost
        app = middleware.cls(app, *middleware.args, **middleware.kwargs)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path)


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        (convert_object_to_asgi_messages(GONE, 404), "unavailable"),
        (convert_object_to_asgi_messages(FAILED, 503), "unavailable"),
        ([], "replica_lost"),
    ],
    ids=["no application", "failed to deploy", "replica died before the first byte"],
)
async def test_serves_own_refusals_become_ours(messages: list[Message], code: str) -> None:
    answer = await answer_of(messages)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert len(answer.headers.get_list("x-request-id")) == 1
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("server_error", None, code)


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (404, b'{"error": {"message": "no"}}', b"application/json"),
        (503, b'{"error": {"message": "full"}}', b"application/json"),
        (404, b"another application's own page", b"text/plain"),
        (200, GONE.encode(), b"text/plain"),
    ],
)
async def test_what_a_replica_says_comes_as_it_is(status: int, content: bytes, kind: bytes) -> None:
    half = len(content) // 2
    answer = await answer_of(
        [
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", kind)],
            },
            {"type": "http.response.body", "body": content[:half], "more_body": True},
            {"type": "http.response.body", "body": content[half:]},
        ]
    )
    assert (answer.status_code, answer.content) == (status, content)


async def test_serves_own_paths_keep_their_words() -> None:
    messages = convert_object_to_asgi_messages(FAILED, 503)
    assert (await answer_of(messages, "/-/healthz")).text == FAILED
