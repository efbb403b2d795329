"""Where the page is served. It holds no data: those come from routes that need the key."""

from typing import Final

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from deployments.console.page import console_page

CONSOLE_PATH: Final = "/console"


def console_router() -> APIRouter:
    """For any ingress that has the API's routes beside it."""
    router = APIRouter()

    @router.get(CONSOLE_PATH, include_in_schema=False)
    async def show_console() -> HTMLResponse:
        page = console_page()
        return HTMLResponse(
            page.html,
            headers={
                "Content-Security-Policy": page.security_policy,
                "Cache-Control": "no-cache",
                "Referrer-Policy": "no-referrer",
                "X-Content-Type-Options": "nosniff",
            },
        )

    return router
