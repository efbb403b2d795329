"""The page over HTTP: open, silent about everything, and unable to run what others wrote."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from deployments.api_keys import KeyRing
from deployments.console.page import FOLDER, SCRIPTS
from deployments.console.routes import console_router
from tests.deployments.console.live_app import REPLICA, live_app

WAIT_S = 60.0
KEYS = {"PACELINE_API_KEYS": "ann: sesame"}


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://replica")


async def eventually(
    client: httpx.AsyncClient, path: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        while True:
            answer: dict[str, Any] = (await client.get(path)).raise_for_status().json()
            if holds(answer):
                return answer
            await asyncio.sleep(0.01)


async def test_any_ingress_can_include_the_page_and_it_is_all_in_one_response() -> None:
    app = FastAPI()
    app.include_router(console_router())
    async with client_of(app) as client:
        response = await client.get("/console")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:|//|[\w./]+\.(js|css))", response.text)
    assert "@import" not in response.text
    assert "url(" not in response.text


async def test_nothing_but_the_page_s_own_script_and_style_may_run() -> None:
    app = FastAPI()
    app.include_router(console_router())
    async with client_of(app) as client:
        response = await client.get("/console")
    policy = dict(
        directive.partition(" ")[::2]
        for directive in response.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(f"<{tag}[^>]*>(.*?)</{tag}>", response.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    # Style attributes and handlers in the markup would be refused.
    assert not re.search(r"<[^>]+\s(style|on\w+)=", (FOLDER / "page.html").read_text())


def test_every_script_is_part_of_the_page() -> None:
    assert sorted(SCRIPTS) == sorted(path.name for path in FOLDER.glob("*.js"))


async def test_the_page_needs_no_key_and_what_it_shows_does(model: Path) -> None:
    async with live_app(model, KeyRing(None, KEYS)) as app, client_of(app) as client:
        page = await client.get("/console")
        assert page.status_code == 200
        assert "tiny," not in page.text
        for path in ("/policy", "/policy/explain", "/v1/models", "/console/", "/consoles"):
            assert (await client.get(path)).status_code == 401, path
        client.headers["Authorization"] = "Bearer sesame"
        for path in ("/policy", "/policy/explain", "/v1/models"):
            assert (await client.get(path)).status_code == 200, path


async def test_the_policy_tells_what_a_replica_does_and_then_that_it_rests(model: Path) -> None:
    async with live_app(model) as app, client_of(app) as client:
        body = {"model": "tiny", "prompt": "One two", "max_tokens": 3000, "ignore_eos": True}
        asking = asyncio.create_task(client.post("/v1/completions", json=body))

        def is_at_work(answer: dict[str, Any]) -> bool:
            replicas = answer["replicas"]
            return bool(replicas) and replicas[0]["tokens_per_s"] > 0 < replicas[0]["decoding"]

        (replica,) = (await eventually(client, "/policy", is_at_work))["replicas"]
        assert replica["replica_id"] == REPLICA
        assert (replica["running"], replica["decoding"], replica["waiting"]) == (1, 1, 0)
        assert 0 < replica["kv_use"] < 1
        asking.cancel()
        described = await eventually(
            client, "/policy", lambda answer: answer["replicas"][0]["running"] == 0
        )
        assert described["replicas"][0]["kv_use"] == 0
        await eventually(
            client, "/policy", lambda answer: answer["replicas"][0]["tokens_per_s"] == 0
        )


async def test_the_explained_table_is_the_one_in_force(model: Path) -> None:
    async with live_app(model) as app, client_of(app) as client:
        await eventually(client, "/policy", lambda answer: answer["table"]["source"] == "measured")
        (kind,) = (await client.get("/policy/explain")).json()["kinds"]
        table = (await client.get("/policy")).json()["table"]
        assert (kind["version"], kind["mode"]) == (table["version"], "adaptive")
        lengths = [[rung["last"], rung["draft_len"]] for rung in kind["rungs"] if rung["draft_len"]]
        assert lengths == table["rungs"]
        assert kind["by_batch_size"][0]["batch_size"] == 1
