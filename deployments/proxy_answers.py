"""What clients hear where no replica answers: Serve's own words, in the API's error format.

Serve's proxy speaks for itself when the application is gone or going (a 404 in plain text), when it
could not be started (a 503 in plain text), and when a replica dies under a request before the first
byte of its answer (nothing at all, of which the HTTP server makes a 500 in plain text). What it
says on its own paths, `/-/healthz` and `/-/routes`, is left as it is.
"""

from typing import Any, Final

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.api_errors import ApiError
from deployments.carried_body import CarryBody
from deployments.request_ids import RequestIds

RETRY_AFTER_S: Final = 5
"""An application that is deployed again takes some seconds at least."""
LOST_RETRY_AFTER_S: Final = 1
"""A replica that died; others may be there."""
SERVES_OWN_PATHS: Final = "/-/"
_GONE: Final = b"Ping http://.../-/routes for available routes."
_FAILED: Final = b"is unavailable because it failed to deploy."
SERVES_WORDS: Final = {404: _GONE, 503: _FAILED}
"""By status, how Serve's own answers end: another application's are none of our business."""


def around_proxy() -> list[Middleware]:
    """For Serve's proxy, which imports this by name. The last one is the outermost."""
    return [Middleware(CarryBody), Middleware(ProxyAnswers), Middleware(RequestIds)]


class ProxyAnswers:
    """ASGI middleware around Serve's proxy: each of its own refusals becomes a 503 of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(SERVES_OWN_PATHS):
            await self._app(scope, receive, send)
            return
        held: Message | None = None
        """The beginning of what may be one of Serve's answers, until its body tells."""
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal held, has_started
            if not has_started and _may_be_serves(message):
                held, has_started = message, True
                return
            has_started = True
            if held is not None:
                start, held = held, None
                if message.get("body", b"").endswith(SERVES_WORDS[start["status"]]):
                    await unavailable().response()(scope, receive, send)
                    return
                await send(start)
            await send(message)

        await self._app(scope, receive, watched_send)
        if not has_started:
            await replica_lost().response()(scope, receive, send)


def _may_be_serves(message: Message) -> bool:
    return (
        message["type"] == "http.response.start"
        and message["status"] in SERVES_WORDS
        and Headers(raw=message["headers"]).get("content-type", "").startswith("text/plain")
    )


def unavailable() -> ApiError:
    return _refusal(
        "nothing is served here at the moment: the application is stopping, or has not been "
        "started",
        "unavailable",
        RETRY_AFTER_S,
    )


def replica_lost() -> ApiError:
    return _refusal(
        "the replica that worked on this request was lost; it may be sent again",
        "replica_lost",
        LOST_RETRY_AFTER_S,
    )


def _refusal(message: str, code: str, retry_s: int) -> ApiError:
    headers: dict[str, Any] = {"Retry-After": str(retry_s)}
    return ApiError(503, message, kind="server_error", code=code, headers=headers)
