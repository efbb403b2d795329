"""Several prompts in one request: each is answered as if it were asked for alone."""

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from deployments.generation.origin import Origin
from tests.deployments.api_app import COMPLETION, App, assert_error, tokens

PROMPTS = ["The", "A longer prompt", "The"]


@pytest.fixture
def app(tokenizer: PreTrainedTokenizerFast) -> App:
    words = ("one", "two", "three", "four", "five", "six")
    return App(tokenizer, *(tokens(tokenizer, word) for word in words))


async def test_choices_are_numbered_prompt_by_prompt(
    app: App, tokenizer: PreTrainedTokenizerFast
) -> None:
    async with app.openai() as client:
        answer = await client.completions.create(
            model="tiny", prompt=PROMPTS, n=2, echo=True, max_tokens=40
        )
        shown = [prompt for prompt in PROMPTS for _ in range(2)]
        words = ["one", "two", "three", "four", "five", "six"]
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3, 4, 5]
        expected = [prompt + word for prompt, word in zip(shown, words, strict=True)]
        assert [choice.text for choice in answer.choices] == expected
        assert answer.usage is not None
        num_prompt = sum(len(tokenizer(prompt)["input_ids"]) for prompt in PROMPTS)
        assert answer.usage.prompt_tokens == num_prompt  # once for both choices
        num_new = sum(len(tokens(tokenizer, word)) - 1 for word in words)
        assert answer.usage.completion_tokens == num_new
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 3 * len(PROMPTS)

        texts = dict.fromkeys(range(6), "")
        stream = await client.completions.create(
            model="tiny", prompt=PROMPTS, n=2, echo=True, max_tokens=40, stream=True
        )
        async for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert list(texts.values()) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"echo": True, "logprobs": 2},
        {"prompt_logprobs": 1},
        {"echo": True, "logprobs": 0, "max_tokens": 0},
        {"n": 2, "prompt_logprobs": 0, "logprobs": 1},
    ],
)
async def test_what_is_told_of_each_is_what_is_told_of_it_alone(
    tokenizer: PreTrainedTokenizerFast, fields: dict[str, Any]
) -> None:
    app = App(tokenizer, tokens(tokenizer, "yes"))
    fields = {"max_tokens": 9} | fields
    together = await app.completion(prompt=PROMPTS, **fields)
    alone = [await app.completion(prompt=prompt, **fields) for prompt in PROMPTS]
    expected = [choice for answer in alone for choice in answer["choices"]]
    for index, choice in enumerate(expected):
        choice["index"] = index
    assert together["choices"] == expected
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][name] == sum(answer["usage"][name] for answer in alone)


async def test_seeds(app: App) -> None:
    """One that is given is every prompt's; one that a router draws gives equal prompts answers
    that differ."""
    prepare = app.service.prepare_completion
    body = COMPLETION | {"prompt": PROMPTS, "n": 2}
    given = [r.sampling.seed for r in (await prepare(body | {"seed": 5})).requests]
    alone = [r.sampling.seed for r in (await prepare(body | {"seed": 5, "prompt": "a"})).requests]
    assert given == alone * 3
    none = [r.sampling.seed for r in (await prepare(body)).requests]
    assert none == [None] * 6
    origin = Origin("request", 0, 11)
    drawn = [r.sampling.seed for r in (await prepare(body, origin=origin)).requests]
    assert len(set(drawn)) == 6
    first = await prepare(body | {"prompt": "a"}, origin=origin)
    assert [r.sampling.seed for r in first.requests] == drawn[:2]


async def test_a_prompt_that_is_too_long_is_named(app: App) -> None:
    for prompts, code in (
        (["a", [5] * 64], "context_length_exceeded"),
        (["a", [999]], "invalid_value"),
    ):
        response = await app.post("/v1/completions", json=COMPLETION | {"prompt": prompts})
        assert_error(response, 400, code, "prompt[1]", "prompt[1]")
    assert app.loop.requests == []


async def test_room_is_each_prompts_own(app: App) -> None:
    prompts = [[5] * 60, [6] * 10]
    job = await app.service.prepare_completion(
        COMPLETION | {"prompt": prompts, "max_tokens": 30, "min_tokens": 20, "stop": "x"}
    )
    assert [request.sampling.max_tokens for request in job.requests] == [4, 30]
    assert [reading.stop.min_tokens for reading in job.readings] == [4, 20]
