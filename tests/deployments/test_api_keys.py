"""API keys: files and the environment, changes while serving, and every route but /health."""

import logging
import os
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from deployments.api_keys import CHECK_S, KEYS_VARIABLE, KeyRing
from engine.errors import ConfigError
from tests.deployments.api_app import COMPLETION, App, assert_error, tokens
from tests.tiny_tokenizer import byte_level_tokenizer

FIRST, SECOND, THIRD = "sk-first-key", "sk:second", "third-key"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def write(path: Path, text: str) -> Path:
    """In place of the old file, as editors and Kubernetes do."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    os.replace(new, path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "keys", f"# who may ask\n\nann: {FIRST}\n  {SECOND}  \nann: {THIRD}\n")


def test_a_file_and_the_environment_together(path: Path) -> None:
    ring = KeyRing(path, {KEYS_VARIABLE: "bob: from-env, other-env"})
    assert not ring.is_open
    assert ring.tenant_of(FIRST) == ring.tenant_of(THIRD) == "ann"
    assert ring.tenant_of("from-env") == "bob"
    unnamed = {ring.tenant_of(SECOND), ring.tenant_of("other-env")}
    assert len(unnamed) == 2
    assert None not in unnamed
    for wrong in ("", FIRST[:-1], f"{FIRST}x", "ann", f"ann: {FIRST}", "# who may ask", "\udcff"):
        assert ring.tenant_of(wrong) is None


def test_without_keys_everybody_may_ask() -> None:
    assert KeyRing(None, {}).is_open


@pytest.mark.parametrize("text", ["", " , ", "two words"])
def test_a_variable_without_a_key_is_no_open_door(text: str) -> None:
    with pytest.raises(ConfigError, match=KEYS_VARIABLE):
        KeyRing(None, {KEYS_VARIABLE: text})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# none\n", "holds no key"),
        ("good-key\nbad key here\n", "line 2 must be a key"),
        ("good-key\nbob: good-key\n", "line 2 is a key that stands there already"),
        ("schlüssel\n", "line 1 must be a key"),
    ],
)
def test_a_bad_file_is_one_line_that_shows_no_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        KeyRing(write(tmp_path / "keys", text), {})
    assert "\n" not in str(caught.value)
    for word in ("good-key", "bad key", "schl"):
        assert word not in str(caught.value)


def test_a_missing_file_and_one_that_all_can_read_are_refused(tmp_path: Path, path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        KeyRing(tmp_path / "none", {})
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"mode 644.*chmod 600"):
        KeyRing(path, {})


def test_a_changed_file_counts_after_a_second(path: Path) -> None:
    clock = Clock()
    ring = KeyRing(path, {}, clock)
    write(path, "new-key\n")
    clock.now_s += 0.9 * CHECK_S
    assert ring.tenant_of(FIRST) == "ann"
    clock.now_s += 0.2 * CHECK_S
    assert ring.tenant_of(FIRST) is None
    assert ring.tenant_of("new-key") is not None


@pytest.mark.parametrize("damage", ["", "two words\n", None])
def test_a_damaged_file_leaves_the_keys_and_is_told_once(
    path: Path, damage: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    ring = KeyRing(path, {}, clock)
    if damage is None:
        path.unlink()
    else:
        write(path, damage)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            clock.now_s += 2 * CHECK_S
            assert ring.tenant_of(FIRST) == "ann"
    assert len(caplog.records) == 1
    assert FIRST not in caplog.text
    write(path, "whole-again\n")
    clock.now_s += 2 * CHECK_S
    assert ring.tenant_of(FIRST) is None
    assert ring.tenant_of("whole-again") is not None


# ---- over HTTP


@pytest.fixture
def app(path: Path) -> App:
    tokenizer: PreTrainedTokenizerFast = byte_level_tokenizer()
    return App(
        tokenizer,
        tokens(tokenizer, "yes"),
        keys=KeyRing(path, {}),
        cors_origins=["https://chat.example"],
    )


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_every_route_but_health_wants_a_key(app: App) -> None:
    async with app.client() as client:
        assert (await client.get("/health")).status_code == 200
        documented = (await client.get("/openapi.json", headers=bearer(FIRST))).json()["paths"]
        asked = [
            (method, route.replace("{model_id}", "tiny"))
            for route, methods in documented.items()
            for method in methods
            if route != "/health"
        ]
        assert ("put", "/policy") in asked
        others = ["/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect", "/nowhere", "/"]
        others += ["/health/", "//health", "/HEALTH", "/health/../policy", "/%68ealth/x"]
        for method, route in [*asked, *(("get", route) for route in others)]:
            for headers in ({}, bearer("wrong"), bearer(""), {"Authorization": f"Basic {FIRST}"}):
                response = await client.request(method, route, headers=headers)
                says = "not valid" if headers else "an API key is needed"
                assert_error(response, 401, "invalid_api_key", None, says)
                assert response.headers["WWW-Authenticate"] == "Bearer"
    assert app.loop.requests == []


async def test_requests_carry_the_tenant_of_their_key(app: App) -> None:
    for key in (FIRST, THIRD, SECOND):
        response = await app.post(
            "/v1/completions", json=COMPLETION | {"n": 2}, headers=bearer(key)
        )
        assert response.status_code == 200
    tenants = [request.tenant for request in app.loop.requests]
    assert tenants[:4] == ["ann"] * 4
    assert len(set(tenants)) == 2


async def test_a_browsers_preflight_needs_no_key_and_other_origins_get_nothing(app: App) -> None:
    asks = {"Access-Control-Request-Method": "POST", "Origin": "https://chat.example"}
    async with app.client() as client:
        allowed = await client.options("/v1/completions", headers=asks)
        assert allowed.headers["access-control-allow-origin"] == "https://chat.example"
        refused = await client.get("/v1/models", headers={"Origin": "https://chat.example"})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://chat.example"
        other = await client.get("/health", headers={"Origin": "https://else.example"})
        assert "access-control-allow-origin" not in other.headers


async def test_without_origins_no_cors_header_is_sent() -> None:
    tokenizer = byte_level_tokenizer()
    async with App(tokenizer, tokens(tokenizer, "yes")).client() as client:
        answer = await client.get("/health", headers={"Origin": "https://chat.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
