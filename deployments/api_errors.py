"""Every failure as OpenAI's error body: {"error": {"message", "type", "param", "code"}}."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.generation.errors import DeadlinePassed, GenerationFailed
from deployments.json_values import SHOWN_CHARACTERS, MalformedBody
from deployments.request_ids import request_id
from deployments.validation import ModelNotFound
from engine.errors import (
    EngineDead,
    EngineFull,
    GrammarError,
    OverShare,
    PacelineError,
    PromptTooLong,
    RequestError,
)

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1
DRAINED_BODY_BYTES = 64 * 2**20
"""How much of a body that is too large is read, and dropped, so that its sender hears why."""


class ApiError(Exception):
    """A failure with its HTTP status, ready to be sent."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }
        self.headers = dict(headers or {})

    def response(self) -> Response:
        # ASCII only: a message may quote half of a surrogate pair.
        return Response(
            json.dumps(self.body), self.status, self.headers, media_type="application/json"
        )


def api_error(error: Exception) -> ApiError:
    """What the client is told of `error`: nothing of the inside if it was not raised on purpose."""
    message = str(error)
    if isinstance(error, ApiError):
        return error
    if isinstance(error, MalformedBody):
        return ApiError(400, message, code="malformed_body")
    if isinstance(error, ModelNotFound):
        return ApiError(404, message, param=error.field, code="model_not_found")
    if isinstance(error, PromptTooLong):
        return ApiError(400, message, param=error.field, code="context_length_exceeded")
    if isinstance(error, RequestError):
        return ApiError(400, message, param=error.field, code="invalid_value")
    if isinstance(error, GrammarError):
        return ApiError(400, message, code="invalid_value")
    if isinstance(error, DeadlinePassed):
        return ApiError(408, message, code="timeout")
    if isinstance(error, GenerationFailed):
        return ApiError(500, message, kind="server_error", code="generation_failed")
    if isinstance(error, OverShare):
        return ApiError(
            429,
            message,
            kind="rate_limit_error",
            code="over_share",
            headers={"Retry-After": str(error.retry_s)},
        )
    if isinstance(error, PacelineError):
        codes = {EngineFull: "engine_full", EngineDead: "engine_dead"}
        retry_s = error.retry_s if isinstance(error, EngineFull) else RETRY_AFTER_S
        return ApiError(
            503,
            message or "not available at the moment",
            kind="server_error",
            code=codes.get(type(error), "unavailable"),
            headers={"Retry-After": str(retry_s)},
        )
    if isinstance(error, HTTPException):
        return ApiError(
            error.status_code,
            error.detail,
            kind="invalid_request_error" if error.status_code < 500 else "server_error",
            headers=error.headers,
        )
    return ApiError(500, "the server failed on this request", kind="server_error", code="internal")


def log_unexpected(error: Exception) -> None:
    """Log an error that nothing raised on purpose; the client learns only that there was one."""
    if not isinstance(error, ApiError | PacelineError | HTTPException):
        logger.error("request %s: unexpected error", request_id(), exc_info=error)


def install(app: FastAPI, max_body_bytes: int) -> None:
    """Give `app` these error bodies, and the limit on request bodies."""

    async def answer(_request: Request, error: Exception) -> Response:
        return api_error(error).response()

    async def answer_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            error.detail = f"there is no {request.method} {_short(request.url.path)} here"
        elif error.status_code == 405:
            error.detail = f"{_short(request.url.path)} does not take {request.method}"
        return api_error(error).response()

    app.add_exception_handler(ApiError, answer)
    app.add_exception_handler(PacelineError, answer)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_middleware(Guard, max_body_bytes=max_body_bytes)


def _short(path: str) -> str:
    return path if len(path) <= SHOWN_CHARACTERS else f"{path[: SHOWN_CHARACTERS - 3]}..."


class Guard:
    """ASGI middleware around the routes: refuses large bodies, answers unexpected errors.

    The limit holds while the body is read, so a body that does not tell its length is cut too.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, self._limited(scope, receive), watched_send)
        except ClientDisconnect:  # while it sent its body
            await Response(status_code=499)(scope, receive, send)
        except Exception as error:
            log_unexpected(error)
            if has_started:
                raise
            await api_error(error).response()(scope, receive, send)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        num_received = 0
        length = Headers(scope=scope).get("content-length", "")
        # 18 digits: int() of a very long number would fail.
        declared = int(length[:18]) if length.isdecimal() else 0

        async def limited_receive() -> Message:
            nonlocal num_received
            message = await receive()
            if message["type"] == "http.request":
                num_received += len(message.get("body", b""))
                if max(num_received, declared) > self._max_body_bytes:
                    await _drain(receive, message)
                    raise ApiError(
                        413,
                        f"the body has {max(num_received, declared)} bytes or more; the limit is "
                        f"{self._max_body_bytes} bytes",
                        code="body_too_large",
                    )
            return message

        return limited_receive


async def _drain(receive: Receive, message: Message) -> None:
    """Read on: a client that is still sending would see a broken connection, not the answer."""
    num_drained = 0
    while message["type"] == "http.request" and message.get("more_body", False):
        num_drained += len(message.get("body", b""))
        if num_drained > DRAINED_BODY_BYTES:
            return
        message = await receive()
