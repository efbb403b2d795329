"""What a client sends and what an application behind Serve's proxy gets are the same."""

from collections.abc import Iterable
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.carried_body import MAX_CARRIED_BYTES, CarryBody, TakeBody

GONE: Message = {"type": "http.disconnect"}
PIECES = [b'{"prompt"', b': "The"}']


def part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Replica:
    """An application that reads its request, and then waits for its client to leave."""

    def __init__(self) -> None:
        self.body = b""
        self.has_left = False
        self.scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        while (message := await receive())["type"] == "http.request":
            self.body += message["body"]
            if not message["more_body"]:
                break
        else:
            self.has_left = True
            return
        self.has_left = (await receive())["type"] == "http.disconnect"


class Proxy:
    """Serve's: the application gets the scope at once, and each message by a call of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.num_calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def call() -> Message:
            self.num_calls += 1
            return await receive()

        await self._app(dict(scope), call, send)


async def sent(messages: Iterable[Message], length: str | None) -> Replica:
    coming = iter(messages)

    async def receive() -> Message:
        return next(coming)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    headers = [] if length is None else [(b"content-length", length.encode())]
    scope: dict[str, Any] = {"type": "http", "path": "/", "headers": headers}
    replica = Replica()
    await CarryBody(Proxy(TakeBody(replica)))(scope, receive, send)
    return replica


LONG = [b"x" * MAX_CARRIED_BYTES, b"y"]


@pytest.mark.parametrize(
    ("pieces", "length"),
    [
        (PIECES, "17"),
        ([b"".join(PIECES)], "17"),
        (PIECES, None),
        (PIECES, "many"),
        (PIECES, "9" * 5000),
        (LONG, f"{MAX_CARRIED_BYTES + 1}"),
        ([b""], "0"),
    ],
    ids=["two pieces", "one piece", "no length", "no number", "a huge number", "long", "empty"],
)
async def test_the_body_arrives_whole_and_once(pieces: list[bytes], length: str | None) -> None:
    last = len(pieces) - 1
    parts = [part(piece, more=index < last) for index, piece in enumerate(pieces)]
    replica = await sent([*parts, GONE], length)
    assert replica.body == b"".join(pieces)
    assert replica.has_left
    assert set(replica.scope) == {"type", "path", "headers"}


async def test_a_short_body_needs_no_call() -> None:
    class Reader(Replica):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            self.body = (await receive())["body"]

    replica = Reader()
    proxy = Proxy(TakeBody(replica))

    async def receive() -> Message:
        return part(b"{}", more=False)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "path": "/", "headers": [(b"content-length", b"2")]}
    await CarryBody(proxy)(scope, receive, send)
    assert (replica.body, proxy.num_calls) == (b"{}", 0)


async def test_a_client_that_leaves_while_it_sends_is_gone() -> None:
    replica = await sent([part(PIECES[0], more=True), GONE, GONE], "17")
    assert replica.has_left
    assert "paceline.body" not in replica.scope


@pytest.mark.parametrize("middleware", [CarryBody, TakeBody])
async def test_what_is_no_http_goes_through(middleware: Any) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    scope: Scope = {"type": "lifespan"}
    await middleware(app)(scope, None, None)
    assert seen == [scope]
