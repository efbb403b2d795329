"""What /docs shows of routes that read their bodies by hand: request, answer, errors."""

from typing import Any

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail


_ERRORS = {
    400: "A field is wrong; `param` names it.",
    401: "No API key, or one that is not valid; every route but /health needs one.",
    404: "No such model.",
    408: "The request's time passed before the first byte; code `timeout`.",
    413: "The body is too large.",
    429: "This API key has its part of the queue; see Retry-After.",
    500: "The request failed in the engine, or unexpectedly.",
    503: "The engine is full or dead, or the policy actor silent; see Retry-After.",
}


def documented(
    body: type[BaseModel],
    answer: type[BaseModel],
    *,
    streams: bool = True,
    errors: tuple[int, ...] = tuple(_ERRORS),
) -> dict[str, Any]:
    """Keywords for a route."""
    content: dict[str, Any] = {"content": {"text/event-stream": {}}} if streams else {}
    return {
        "openapi_extra": json_body(_inlined(body.model_json_schema())),
        "responses": {200: {"model": answer, **content}} | described_errors(*errors),
    }


def described_errors(*statuses: int, needs_key: bool = True) -> dict[int | str, dict[str, Any]]:
    """For `responses` of a route."""
    told = (*statuses, 401) if needs_key else statuses
    return {status: {"model": ErrorBody, "description": _ERRORS[status]} for status in told}


def json_body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its own definitions put in place; they nest, and never recur."""
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        if reference := node.get("$ref"):
            return resolve(definitions[reference.rpartition("/")[2]])
        return {key: resolve(value) for key, value in node.items()}

    resolved: dict[str, Any] = resolve(schema)
    return resolved
