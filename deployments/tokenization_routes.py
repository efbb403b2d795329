"""Routes between text and tokens."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request

from deployments.documented import documented
from deployments.json_values import parse_object
from deployments.openai.tokenization import (
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeReply,
    TokenizeRequest,
)
from deployments.service import GenerationService

_ERRORS = (400, 404, 413, 500)


def tokenization_router(get_service: Callable[[], GenerationService]) -> APIRouter:
    """The getter is called at each request."""
    router = APIRouter()

    @router.post(
        "/tokenize", **documented(TokenizeRequest, TokenizeReply, streams=False, errors=_ERRORS)
    )
    async def tokenize(request: Request) -> dict[str, Any]:
        return await get_service().tokenize(parse_object(await request.body()))

    @router.post(
        "/detokenize",
        **documented(DetokenizeRequest, DetokenizeReply, streams=False, errors=_ERRORS),
    )
    async def detokenize(request: Request) -> dict[str, Any]:
        return await get_service().detokenize(parse_object(await request.body()))

    return router
