"""A request's own time: asked for in the body or a header, or configured."""

import asyncio
import json
from typing import Any

import openai
import pytest
from transformers import PreTrainedTokenizerFast

from deployments.generation.errors import DeadlinePassed
from deployments.service import GenerationService
from tests.deployments.api_app import CHAT, COMPLETION, App, assert_error, tokens
from tests.deployments.fake_loop import FakeLoop
from tests.tiny_tokenizer import byte_level_tokenizer

SHORT_S = 0.05
LONG_S = 3600.0


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


def stuck_after(tokenizer: PreTrainedTokenizerFast, num_tokens: int) -> App:
    """Makes so many tokens, and then nothing any more."""
    return App(tokenizer, [*tokens(tokenizer, "abc")[:num_tokens], asyncio.Event()])


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        ({"timeout": SHORT_S}, None),
        ({}, SHORT_S),
        ({"timeout": LONG_S}, SHORT_S),
        ({"timeout": SHORT_S}, LONG_S),
    ],
)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", COMPLETION),
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", {"model": "tiny", "input": "a"}),
    ],
)
async def test_a_whole_answer_that_takes_too_long(
    tokenizer: PreTrainedTokenizerFast,
    path: str,
    body: dict[str, Any],
    fields: dict[str, Any],
    header: float | None,
) -> None:
    app = stuck_after(tokenizer, 1)
    headers = {} if header is None else {"x-request-timeout": str(header)}
    response = await app.post(path, json=body | fields, headers=headers)
    assert_error(response, 408, "timeout", None, "time is up")
    assert app.loop.num_open == 0


async def test_a_stream_that_has_not_begun_is_a_408(tokenizer: PreTrainedTokenizerFast) -> None:
    app = stuck_after(tokenizer, 0)
    body = COMPLETION | {"stream": True, "timeout": SHORT_S}
    assert_error(await app.post("/v1/completions", json=body), 408, "timeout", None, "time is up")
    assert app.loop.num_open == 0


async def test_a_stream_that_has_begun_ends_with_an_error_event(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    app = stuck_after(tokenizer, 2)
    body = COMPLETION | {"stream": True, "timeout": 0.3}
    response = await app.post("/v1/completions", json=body)
    assert response.status_code == 200
    *chunks, error = response.text.removesuffix("\n\n").split("\n\n")
    assert json.loads(chunks[0].removeprefix("data: "))["choices"][0]["text"].startswith("a")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "timeout"
    assert app.loop.num_open == 0


async def test_the_work_ends_while_nobody_reads(tokenizer: PreTrainedTokenizerFast) -> None:
    app = stuck_after(tokenizer, 1)
    service = GenerationService(
        app.loop, tokenizer, "tiny", max_model_len=64, vocab_size=len(tokenizer)
    )
    job = await service.prepare_completion(COMPLETION | {"timeout": SHORT_S})
    chunks = service.chunks(job)
    await anext(chunks)
    await app.loop.closed.wait()  # no further chunk has been asked for
    with pytest.raises(DeadlinePassed):
        await anext(chunks)


async def test_the_configured_time_is_for_requests_that_say_nothing(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    gate = asyncio.Event()
    loop = FakeLoop([gate, *tokens(tokenizer, "a")])
    service = GenerationService(
        loop,
        tokenizer,
        "tiny",
        max_model_len=64,
        vocab_size=len(tokenizer),
        request_timeout_s=SHORT_S,
    )
    with pytest.raises(DeadlinePassed):
        await service.whole(await service.prepare_completion(COMPLETION))
    asked = await service.prepare_completion(COMPLETION | {"timeout": LONG_S})
    answering = asyncio.create_task(service.whole(asked))
    with pytest.raises(DeadlinePassed):  # a second one's time passes while the first waits
        await service.whole(await service.prepare_completion(COMPLETION))
    gate.set()
    assert "choices" in await answering


async def test_its_time_goes_on_while_it_is_prepared(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, tokens(tokenizer, "a"))
    app.loop.holds_grammars = asyncio.Event()
    body = COMPLETION | {"structured_outputs": {"regex": "a"}, "timeout": SHORT_S}
    assert_error(await app.post("/v1/completions", json=body), 408, "timeout", None, "time is up")
    assert app.loop.requests == []


async def test_an_answer_in_time_is_an_answer(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, tokens(tokenizer, "abc"))
    answer = await app.completion(timeout=LONG_S)
    assert answer["choices"][0]["text"] == "abc"


async def test_the_client_sees_its_own_error(tokenizer: PreTrainedTokenizerFast) -> None:
    async with stuck_after(tokenizer, 0).openai() as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.completions.create(
                model="tiny", prompt="a", extra_body={"timeout": SHORT_S}
            )
    assert caught.value.status_code == 408


@pytest.mark.parametrize("bad", ["0", "-1", '"5"', "true", "1e400", "1" + "0" * 400])
async def test_a_field_that_is_no_number_of_seconds(
    tokenizer: PreTrainedTokenizerFast, bad: str
) -> None:
    app = App(tokenizer, tokens(tokenizer, "abc"))
    content = '{"model": "tiny", "prompt": "a", "timeout": ' + bad + "}"
    response = await app.post("/v1/completions", content=content)
    assert_error(response, 400, "invalid_value", "timeout", "timeout")


@pytest.mark.parametrize("bad", ["0", "-1", "nan", "inf", "soon", ""])
async def test_a_header_that_is_no_time(tokenizer: PreTrainedTokenizerFast, bad: str) -> None:
    app = App(tokenizer, tokens(tokenizer, "abc"))
    response = await app.post(
        "/v1/completions", json=COMPLETION, headers={"x-request-timeout": bad}
    )
    assert_error(response, 400, "invalid_value", "x-request-timeout", "seconds above 0")


@pytest.mark.parametrize("bad", [0, -1, True, "5"])
async def test_a_field_that_is_no_time(tokenizer: PreTrainedTokenizerFast, bad: object) -> None:
    app = App(tokenizer, tokens(tokenizer, "abc"))
    response = await app.post("/v1/completions", json=COMPLETION | {"timeout": bad})
    assert_error(response, 400, "invalid_value", "timeout", "timeout must be")
