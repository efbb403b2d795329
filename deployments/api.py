"""The HTTP surface of a replica: OpenAI's routes, its health, and the policy."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware

from deployments import api_errors
from deployments.access import Access
from deployments.api_keys import KeyRing
from deployments.carried_body import TakeBody
from deployments.console.routes import console_router
from deployments.documented import described_errors, json_body
from deployments.generation_routes import TIMEOUT_HEADER, generation_router
from deployments.json_values import parse_object, show
from deployments.request_ids import HEADER as REQUEST_ID_HEADER
from deployments.request_ids import RequestIds
from deployments.service import GenerationService
from deployments.tokenization_routes import tokenization_router
from deployments.validation import ModelNotFound, plain_name
from engine.errors import RequestError
from policy.table import UNBOUNDED_BATCH_SIZE

_POLICY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["policy"],
    "examples": [
        {"policy": "adaptive"},
        {"policy": "off"},
        {"policy": {"fixed": 4}},
        {"policy": {"table": {"8": 2}}},
    ],
}

_BATCH_SIZE_PARAMETER: dict[str, Any] = {
    "parameters": [
        {
            "name": "batch_size",
            "in": "query",
            "description": "Left out: the whole table, rung by rung.",
            "schema": {"type": "integer", "minimum": 1},
        }
    ]
}


class PolicyPort(Protocol):
    """What the API needs of the policy."""

    async def get(self) -> dict[str, Any]:
        """The table and the replicas."""

    async def set(self, policy: object) -> dict[str, Any]:
        """Publish a policy; returns what `get` does. Raises RequestError if it is not one."""

    async def explain(self, batch_size: int) -> dict[str, Any]:
        """Why that many sequences are drafted for as they are: words under "text"."""

    async def explain_table(self) -> dict[str, Any]:
        """The same of the whole table, rung by rung, for each kind of replica under "kinds"."""

    def heard_s_ago(self) -> float | None:
        """Seconds since the policy actor confirmed the table in force; None: never yet."""


def create_api(
    get_service: Callable[[], GenerationService],
    get_policy: Callable[[], PolicyPort],
    *,
    max_body_bytes: int = 2**20,
    get_keys: Callable[[], KeyRing | None] = lambda: None,
    get_metric_addresses: Callable[[], Sequence[str]] = tuple,
    cors_origins: Sequence[str] = (),
) -> FastAPI:
    """The application. The getters are called at each request: the replica is known only then;
    that of addresses in a thread."""
    app = FastAPI(title="Paceline", description="An OpenAI-compatible API.")
    api_errors.install(app, max_body_bytes)
    # The last one is the outermost: refusals have an id too.
    app.add_middleware(Access, get_keys=get_keys)
    app.add_middleware(RequestIds)
    if cors_origins:
        # A browser's preflight carries no key, and refusals must be readable.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["GET", "POST", "PUT"],
            allow_headers=["Authorization", "Content-Type", REQUEST_ID_HEADER, TIMEOUT_HEADER],
            expose_headers=["Retry-After", REQUEST_ID_HEADER],
        )
    app.add_middleware(TakeBody)
    app.include_router(generation_router(get_service))
    app.include_router(tokenization_router(get_service))
    app.include_router(console_router())

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(get_service())]}

    @app.get("/v1/models/{model_id:path}", responses=described_errors(404))
    async def get_model(model_id: str) -> dict[str, Any]:
        service = get_service()
        if model_id != service.model_name:
            raise ModelNotFound("model", f"model {show(model_id)} is not served here")
        return _model(service)

    @app.get("/health", responses=described_errors(503, needs_key=False))
    async def health() -> dict[str, Any]:
        """503 when the engine is dead."""
        service = get_service()
        status = await service.health()
        return {
            "status": "ok",
            "model": service.model_name,
            "engine": dataclasses.asdict(status),
            "table": {
                "version": status.table_version,
                "draft_len": status.draft_len,
                "heard_s_ago": get_policy().heard_s_ago(),
            },
        }

    @app.get("/metrics/targets", responses=described_errors())
    async def metrics_targets() -> list[dict[str, Any]]:
        """Where Prometheus finds the metrics, as its `http_sd_configs` read it."""
        addresses = await asyncio.to_thread(get_metric_addresses)
        return [{"targets": list(addresses), "labels": {}}]

    @app.get("/policy", responses=described_errors(503))
    async def show_policy() -> dict[str, Any]:
        return await get_policy().get()

    @app.put(
        "/policy",
        openapi_extra=json_body(_POLICY_SCHEMA),
        responses=described_errors(400, 413, 503),
    )
    async def set_policy(request: Request) -> dict[str, Any]:
        body = parse_object(await request.body())
        if unknown := next((name for name in body if name != "policy"), None):
            name = plain_name(unknown)
            raise RequestError(name, f"{name} is not a field of this request")
        if "policy" not in body:
            raise RequestError("policy", "policy is required")
        return await get_policy().set(body["policy"])

    @app.get(
        "/policy/explain", openapi_extra=_BATCH_SIZE_PARAMETER, responses=described_errors(400, 503)
    )
    async def explain_policy(request: Request) -> dict[str, Any]:
        asked = request.query_params.get("batch_size")
        if asked is None:
            return await get_policy().explain_table()
        return await get_policy().explain(_batch_size(asked))

    return app


def _batch_size(value: str) -> int:
    """Of a query string. Raises RequestError."""
    digits = value if value.isascii() and value.isdigit() else "0"
    # Cut: int() refuses some thousand digits, and no batch size allowed has as many as these.
    number = int(digits.lstrip("0")[: len(str(UNBOUNDED_BATCH_SIZE)) + 1] or "0")
    if not 1 <= number <= UNBOUNDED_BATCH_SIZE:
        raise RequestError(
            "batch_size",
            f"batch_size must be a whole number from 1 to {UNBOUNDED_BATCH_SIZE}, got "
            f"{show(value)}",
        )
    return number


def _model(service: GenerationService) -> dict[str, Any]:
    return {
        "id": service.model_name,
        "object": "model",
        "created": service.created_unix_s,
        "owned_by": "paceline",
        "max_model_len": service.max_model_len,
    }
