"""Callers with a DeploymentHandle, in the cluster."""

from collections.abc import Mapping
from typing import Any

import pytest
from ray import serve

from deployments.launcher import APP_NAME
from engine.errors import RequestError
from tests.serve.conftest import CONTEXT_TOKENS, RunningApp, eventually

BODY: dict[str, Any] = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 16, "temperature": 0}


def generate(body: Mapping[str, Any]) -> Any:
    return serve.get_app_handle(APP_NAME).options(stream=True).generate.remote(body)


def test_chunks_stream_to_a_handle(app: RunningApp) -> None:
    texts = [chunk["choices"][0]["text"] for chunk in generate(BODY)]
    completion = app.client().completions.create(**BODY)
    assert "".join(texts) == completion.choices[0].text


def test_choices_with_logprobs_stream_to_a_handle(app: RunningApp) -> None:
    fields: dict[str, Any] = {"n": 2, "logprobs": 1, "echo": True, "prompt_logprobs": 0, "seed": 3}
    choices = [chunk["choices"][0] for chunk in generate({**BODY, **fields})]
    whole = app.client().completions.create(
        **BODY, n=2, logprobs=1, echo=True, seed=3, extra_body={"prompt_logprobs": 0}
    )
    for choice in whole.choices:
        parts = [part for part in choices if part["index"] == choice.index]
        assert "".join(part["text"] for part in parts) == choice.text
        assert [list(e or ()) for e in parts[0]["prompt_logprobs"]] == [[], ["6"], ["7"]]


@pytest.mark.usefixtures("app")
def test_a_bad_grammar_names_the_field() -> None:
    with pytest.raises(RequestError) as caught:
        list(generate({**BODY, "structured_outputs": {"grammar": "root ::= ("}}))
    assert caught.value.field == "structured_outputs.grammar"


def test_a_chat_streams_to_a_handle(app: RunningApp) -> None:
    chunks = list(
        generate(
            {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        )
    )
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.usefixtures("app")
def test_a_bad_body_names_the_field() -> None:
    with pytest.raises(RequestError, match="got 0") as caught:
        list(generate({**BODY, "max_tokens": 0}))
    assert caught.value.field == "max_tokens"


def test_cancelling_frees_the_blocks(app: RunningApp) -> None:
    response = generate({**BODY, "max_tokens": CONTEXT_TOKENS})
    next(iter(response))
    assert app.engine()["num_running"] == 1
    response.cancel()
    eventually(app.is_idle, "the blocks of a cancelled call are free")
