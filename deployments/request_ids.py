"""Each request's id: the client's own if it is sane, else a new one; told in every response."""

import re
import uuid
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
_SANE = re.compile(r"[\x20-\x7e]{1,128}")
"""Printable ASCII: it goes into a header and into log lines as it is."""
_current: ContextVar[str] = ContextVar("request_id", default="-")


def request_id() -> str:
    """Of the request that the current task works for; "-" outside any."""
    return _current.get()


class RequestIds:
    """ASGI middleware, around whatever may answer or fail: in a replica, and around Serve's proxy.

    Serve adds the id that it was given once more; set here last, it is told once.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "").strip()
        chosen = given if _SANE.fullmatch(given) else uuid.uuid4().hex

        # For whoever is inside: another of these in a replica behind one in the proxy, and Serve.
        MutableHeaders(scope=scope)[HEADER] = chosen

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = chosen
            await send(message)

        token = _current.set(chosen)
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            _current.reset(token)
