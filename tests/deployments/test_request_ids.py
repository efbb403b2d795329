"""Every answer tells its request's id, and so do the log lines of errors."""

import logging

import pytest
from transformers import PreTrainedTokenizerFast

from tests.deployments.api_app import COMPLETION, App, tokens
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


@pytest.fixture
def app(tokenizer: PreTrainedTokenizerFast) -> App:
    return App(tokenizer, tokens(tokenizer, "abc"))


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/completions", COMPLETION, 200),
        ("/v1/completions", COMPLETION | {"stream": True}, 200),
        ("/v1/completions", {}, 400),
        ("/nowhere", {}, 404),
        ("/v1/completions", COMPLETION | {"prompt": "x" * 50_000}, 413),
    ],
)
async def test_a_sane_id_comes_back(
    app: App, path: str, body: dict[str, object], status: int
) -> None:
    response = await app.post(path, json=body, headers={"x-request-id": "order 66/a"})
    assert response.status_code == status
    assert response.headers.get_list("x-request-id") == ["order 66/a"]


@pytest.mark.parametrize("given", ["", "x" * 129, "caf\u00e9", "a\tb"])
async def test_another_is_replaced(app: App, given: str) -> None:
    headers = {"x-request-id": given.encode("latin-1")}
    seen = set()
    for _ in range(2):
        response = await app.post("/v1/completions", json=COMPLETION, headers=headers)
        (told,) = response.headers.get_list("x-request-id")
        assert told != given
        assert told.isascii()
        assert 0 < len(told) <= 128
        seen.add(told)
    assert len(seen) == 2


async def test_one_is_made_where_there_is_none(app: App) -> None:
    async with app.client() as client:
        told = {(await client.get("/health")).headers["x-request-id"] for _ in range(2)}
    assert len(told) == 2
    assert "-" not in told


@pytest.mark.parametrize("num_tokens_before", [0, 1])
async def test_an_unexpected_error_is_logged_with_it(
    tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture, num_tokens_before: int
) -> None:
    script = [*tokens(tokenizer, "a")[:num_tokens_before], ValueError("a bug")]
    app = App(tokenizer, script)
    with caplog.at_level(logging.ERROR):
        await app.post(
            "/v1/completions",
            json=COMPLETION | {"stream": True},
            headers={"x-request-id": "order66"},
        )
    assert "request order66: unexpected error" in caplog.text
