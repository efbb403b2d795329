"""The OpenAI client against the running application."""

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types import CompletionUsage
from pydantic import BaseModel
from transformers import AutoTokenizer

from tests.serve.conftest import CONTEXT_TOKENS, RunningApp, eventually
from tests.tiny import load_reference, reference_greedy

PROMPT = "The quick brown fox"
MESSAGES = [{"role": "user", "content": "One two three"}]


def counts(usage: CompletionUsage | None) -> dict[str, Any]:
    """Without the tokens that were computed before: they are more the second time."""
    assert usage is not None
    return usage.model_dump(exclude={"prompt_tokens_details"})


def test_the_model_is_listed(app: RunningApp) -> None:
    (model,) = app.client().models.list().data
    assert model.id == "tiny"
    assert app.client().models.retrieve("tiny").id == "tiny"


def test_a_greedy_completion_is_what_plain_transformers_makes(
    app: RunningApp, tiny_model: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    prompt = tokenizer(PROMPT)["input_ids"]
    tokens = reference_greedy(load_reference(tiny_model), prompt, 48)
    completion = app.client().completions.create(
        model="tiny", prompt=PROMPT, max_tokens=48, temperature=0
    )
    assert completion.choices[0].text == tokenizer.decode(tokens, skip_special_tokens=True)
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == len(prompt)
    assert completion.usage.completion_tokens == 48


def test_a_streamed_completion_is_the_same_text(app: RunningApp) -> None:
    client = app.client()
    whole = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=32, seed=5)
    chunks = list(
        client.completions.create(
            model="tiny",
            prompt=PROMPT,
            max_tokens=32,
            seed=5,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(texts) == whole.choices[0].text
    assert counts(chunks[-1].usage) == counts(whole.usage)


def test_a_chat_streamed_or_not_is_the_same_text(app: RunningApp) -> None:
    client = app.client()
    arguments: dict[str, Any] = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_completion_tokens": 24,
        "seed": 7,
    }
    whole = client.chat.completions.create(**arguments)
    stream = client.chat.completions.create(
        **arguments, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == whole.choices[0].message.content
    assert counts(chunks[-1].usage) == counts(whole.usage)


def test_choices_logprobs_and_a_schema(app: RunningApp) -> None:
    client = app.client()
    arguments: dict[str, Any] = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "seed": 5}
    alone = client.completions.create(**arguments)
    several = client.completions.create(**arguments, n=3, logprobs=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert several.choices[0].text == alone.choices[0].text
    assert several.usage is not None
    assert several.usage.completion_tokens == 36
    prompts = client.completions.create(**(arguments | {"prompt": [PROMPT, "One", PROMPT]}))
    assert prompts.choices[0].text == prompts.choices[2].text == alone.choices[0].text
    assert prompts.choices[1].text != alone.choices[0].text
    for choice in several.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.tokens is not None
        assert len(choice.logprobs.tokens) == 12

    class Fox(BaseModel):
        quick: bool

    parsed = client.chat.completions.parse(
        model="tiny", messages=[{"role": "user", "content": "One"}], response_format=Fox
    )
    assert parsed.choices[0].message.parsed is not None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": "other"}, "model"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1] * CONTEXT_TOKENS}, "prompt"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"no_such_field": 1}, "no_such_field"),
    ],
)
def test_a_bad_field_is_named(app: RunningApp, fields: dict[str, object], param: str) -> None:
    body = {"model": "tiny", "prompt": [5, 6], **fields}
    answer = httpx.post(f"{app.url}/v1/completions", json=body)
    assert answer.status_code == (404 if param == "model" else 400)
    assert answer.json()["error"]["param"] == param


def test_an_empty_prompt_without_a_first_token_is_refused_by_the_client_too(
    app: RunningApp,
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        app.client().completions.create(model="tiny", prompt=[])
    assert caught.value.param == "prompt"


def test_a_body_that_is_no_json_or_too_large(app: RunningApp) -> None:
    url = f"{app.url}/v1/completions"
    assert httpx.post(url, content=b"{").status_code == 400
    assert httpx.post(url, content=b" " * 2 * 2**20).status_code == 413


def test_a_client_that_goes_away_frees_its_blocks(app: RunningApp) -> None:
    stream = app.client().completions.create(
        model="tiny", prompt=PROMPT, max_tokens=CONTEXT_TOKENS, stream=True
    )
    next(iter(stream))
    assert app.engine()["num_running"] == 1
    stream.close()
    eventually(app.is_idle, "the blocks of a closed stream are free")


def test_a_client_that_gives_up_on_a_whole_answer_frees_its_blocks(app: RunningApp) -> None:
    impatient = app.client().with_options(timeout=0.5)
    with pytest.raises(openai.APITimeoutError):
        impatient.completions.create(model="tiny", prompt=PROMPT, max_tokens=CONTEXT_TOKENS)
    eventually(app.is_idle, "the blocks of an abandoned request are free")


def test_a_response_streamed_or_not_is_the_chats_text(app: RunningApp) -> None:
    client = app.client()
    arguments: dict[str, Any] = {"model": "tiny", "extra_body": {"seed": 7}}
    whole = client.responses.create(input="One two three", max_output_tokens=24, **arguments)
    events = list(
        client.responses.create(
            input="One two three", max_output_tokens=24, stream=True, **arguments
        )
    )
    chat = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "One two three"}],
        max_completion_tokens=24,
        seed=7,
    )
    assert whole.output_text == chat.choices[0].message.content
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.output_text == whole.output_text


def test_a_deadline_frees_the_blocks(app: RunningApp) -> None:
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": CONTEXT_TOKENS, "ignore_eos": True}
    answer = httpx.post(f"{app.url}/v1/completions", json=body | {"timeout": 0.2}, timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "timeout")
    eventually(app.is_idle, "the blocks of a request whose time is up are free")


def test_an_id_is_told_once_through_the_proxy(app: RunningApp) -> None:
    def told(**headers: str) -> str:
        answer = httpx.get(f"{app.url}/v1/models", headers=headers)
        (request_id,) = answer.headers.get_list("x-request-id")
        return request_id

    assert told(**{"x-request-id": "order 66"}) == "order 66"
    assert told(**{"x-request-id": "x" * 129}) != "x" * 129
    assert told() != told()
