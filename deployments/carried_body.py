"""A request's body, carried with its head from Serve's proxy to the replica.

Serve sends a replica the head alone, and the replica calls back for the body: one more turn between
two processes before any work can begin.
"""

from collections.abc import Iterator
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BODY: Final = "paceline.body"
"""In the scope, of which Serve hands on all keys."""
MAX_CARRIED_BYTES: Final = 2**16
"""Of a longer body the turn is a small part of its way."""


class CarryBody:
    """ASGI middleware around Serve's proxy. Other applications get the body as ever."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_short(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        received = [await receive()]
        while received[-1].get("more_body", False):
            received.append(await receive())
        if received[-1]["type"] == "http.request":  # else the client has gone
            body = b"".join(message.get("body", b"") for message in received)
            scope = {**scope, _BODY: body}
        again: Iterator[Message] = iter(received)

        async def receive_again() -> Message:
            return next(again, None) or await receive()

        await self._app(scope, receive_again, send)


class TakeBody:
    """ASGI middleware around a replica's API: the carried body is there at once, and the one that
    Serve still fetches is passed over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body: bytes | None = scope.pop(_BODY, None)
        if body is None:
            await self._app(scope, receive, send)
            return
        is_taken = False

        async def receive_carried() -> Message:
            nonlocal is_taken
            if not is_taken:
                is_taken = True
                return {"type": "http.request", "body": body, "more_body": False}
            while (message := await receive())["type"] == "http.request":
                pass
            return message

        await self._app(scope, receive_carried, send)


def _is_short(headers: Headers) -> bool:
    """Whether it says how long its body is, and that is not long. Numbers are compared by their
    digits first: int() of a very long one would fail."""
    length = headers.get("content-length", "")
    return length.isdecimal() and len(length) < 10 and 0 < int(length) <= MAX_CARRIED_BYTES
