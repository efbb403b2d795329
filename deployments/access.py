"""ASGI middleware: nobody without a key gets further, and requests are known by their tenant."""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.api_errors import ApiError
from deployments.api_keys import KeyRing
from deployments.console.routes import CONSOLE_PATH

OPEN_PATHS = frozenset({"/health", CONSOLE_PATH})
"""What asks whether we are alive has no key; the page, which tells nothing by itself, asks for one.
"""
_TENANT = "paceline.tenant"


class Access:
    """Refuses requests without one of the keys, on every path but the open ones."""

    def __init__(self, app: ASGIApp, get_keys: Callable[[], KeyRing | None]) -> None:
        self._app = app
        self._get_keys = get_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keys = self._get_keys()
        if (
            scope["type"] == "lifespan"
            or keys is None
            or keys.is_open
            or scope["path"] in OPEN_PATHS
        ):
            await self._app(scope, receive, send)
            return
        tenant = _tenant(scope, keys)
        if tenant is not None:
            await self._app({**scope, _TENANT: tenant}, receive, send)
        elif scope["type"] == "http":
            await _refusal(scope).response()(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})


def tenant_of(scope: Scope) -> str:
    """Who sent a request; nothing where no keys are needed."""
    tenant: str = scope.get(_TENANT, "")
    return tenant


def _tenant(scope: Scope, keys: KeyRing) -> str | None:
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    return keys.tenant_of(key.strip()) if scheme.lower() == "bearer" else None


def _refusal(scope: Scope) -> ApiError:
    is_missing = "authorization" not in Headers(scope=scope)
    says = (
        "an API key is needed: send it as 'Authorization: Bearer KEY'"
        if is_missing
        else "the API key is not valid here"
    )
    return ApiError(401, says, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
