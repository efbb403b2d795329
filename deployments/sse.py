"""Server-sent events, and work that ends when its client goes away."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from deployments.api_errors import api_error, log_unexpected
from deployments.generation.job import ReplyFormat

Result = TypeVar("Result")

DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):
    """The client closed the connection; nobody waits for an answer."""


async def unless_disconnected(receive: Receive, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled when the client goes away (raises ClientGone).

    The request's body must have been read. Cancelled itself, it cancels `work` and waits for it.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.wait({working, watching})


class EventStream(Response):
    """A stream of JSON chunks as server-sent events.

    `first` has been made already, so that whatever goes wrong before it is a real HTTP error.
    `format` says how the stream ends. Closes `chunks` when the client goes away and when this task
    is cancelled.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        first: dict[str, Any],
        chunks: AsyncGenerator[dict[str, Any], None],
        format: ReplyFormat,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first = first
        self._chunks = chunks
        self._format = format

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._chunks):
            with contextlib.suppress(ClientGone):
                await unless_disconnected(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await _send_body(send, event(self._first))
        try:
            async for chunk in self._chunks:
                await _send_body(send, event(chunk))
        except Exception as error:
            # The status is out; the client learns it from an event that no SDK takes for a chunk.
            log_unexpected(error)
            await _send_body(send, event(self._format.failure(api_error(error).body)))
        else:
            if self._format.ends_with_done:
                await _send_body(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def event(data: dict[str, Any]) -> bytes:
    """A chunk that has a type, as those of the Responses API, is an event of that name."""
    name = f"event: {data['type']}\n".encode("ascii") if "type" in data else b""
    # ASCII only: many clients split lines at U+2028 and the like, which JSON leaves as they are.
    return name + b"data: " + json.dumps(data, separators=(",", ":")).encode("ascii") + b"\n\n"


async def _send_body(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
