"""Routes that generate: completions, chats and responses, whole or streamed."""

import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any, Protocol

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from deployments.access import tenant_of
from deployments.documented import documented
from deployments.generation.job import Job
from deployments.json_values import parse_object, show
from deployments.openai.replies import ChatCompletion, Completion
from deployments.openai.responses.replies import ResponseObject
from deployments.openai.responses.schemas import ResponsesRequest
from deployments.openai.schemas import ChatRequest, CompletionRequest
from deployments.service import GenerationService
from deployments.sse import ClientGone, EventStream, unless_disconnected
from engine.errors import RequestError

TIMEOUT_HEADER = "x-request-timeout"


class Prepare(Protocol):
    def __call__(self, body: dict[str, Any], timeout_s: float | None) -> Awaitable[Job]: ...


def generation_router(get_service: Callable[[], GenerationService]) -> APIRouter:
    """The getter is called at each request."""
    router = APIRouter()

    @router.post(
        "/v1/completions", response_model=None, **documented(CompletionRequest, Completion)
    )
    async def create_completion(request: Request) -> Response:
        service = get_service()
        return await _answer(request, service, service.prepare_completion)

    @router.post(
        "/v1/chat/completions", response_model=None, **documented(ChatRequest, ChatCompletion)
    )
    async def create_chat_completion(request: Request) -> Response:
        service = get_service()
        return await _answer(request, service, service.prepare_chat)

    @router.post(
        "/v1/responses", response_model=None, **documented(ResponsesRequest, ResponseObject)
    )
    async def create_response(request: Request) -> Response:
        service = get_service()
        return await _answer(request, service, service.prepare_response)

    return router


async def _answer(request: Request, service: GenerationService, prepare: Prepare) -> Response:
    timeout_s = _timeout(request.headers.get(TIMEOUT_HEADER))
    job = await prepare(parse_object(await request.body()), timeout_s)
    job = job.of(tenant_of(request.scope))
    try:
        if not job.stream:
            whole = service.whole(job)
            return JSONResponse(await unless_disconnected(request.receive, whole))
        async with AsyncExitStack() as opened:
            chunks = await opened.enter_async_context(aclosing(service.chunks(job)))
            first = await unless_disconnected(request.receive, anext(chunks))
            opened.pop_all()  # from here on the EventStream closes them
            return EventStream(first, chunks, job.format)
    except ClientGone:
        return Response(status_code=499)  # nobody receives it; it is for the access log


def _timeout(value: str | None) -> float | None:
    """Of the header. Raises RequestError."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise RequestError(
            TIMEOUT_HEADER, f"{TIMEOUT_HEADER} must be seconds above 0, got {show(value)}"
        )
    return seconds
