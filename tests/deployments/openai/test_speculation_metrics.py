"""How a request's drafts fared, told on request; and the usage's cached tokens, always."""

from typing import Any

from transformers import PreTrainedTokenizerFast

from engine.request import FinishReason, TokenDelta
from tests.deployments.api_app import App, assert_error

FIELD = {"include_speculation_metrics": True}
WITH_USAGE = {"stream_options": {"include_usage": True}}


def scripted(tokenizer: PreTrainedTokenizerFast) -> App:
    """Steps of 1, 3, 1 and 2 tokens: the first drafts nothing, then 2 of 3, 0 of 2, 1 of 1."""
    (a, *_) = tokenizer("a", add_special_tokens=False)["input_ids"]
    steps = [
        TokenDelta("", (a,), num_cached_tokens=2),
        TokenDelta("", (a,) * 3, num_drafted=3, num_accepted=2),
        TokenDelta("", (a,), num_drafted=2, num_accepted=0),
        TokenDelta("", (a,) * 2, FinishReason.LENGTH, num_drafted=1, num_accepted=1),
    ]
    return App(tokenizer, steps)


EXPECTED = {
    "speculative_decoding": {
        "mean_acceptance_length": 2.0,
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": {"0": 1, "1": 1, "2": 1},
        "num_spec_steps": 3,
        "num_draft_tokens": 6,
        "num_accepted_draft_tokens": 3,
    }
}


async def test_whole_answers_have_them_on_request(tokenizer: PreTrainedTokenizerFast) -> None:
    app = scripted(tokenizer)
    for answer in (await app.completion(**FIELD), await app.chat(**FIELD)):
        assert answer["metrics"] == EXPECTED
    for answer in (await app.completion(), await app.chat()):
        assert "metrics" not in answer
        assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    body = {"model": "tiny", "input": "a"}
    answer = (await app.post("/v1/responses", json=body | FIELD)).json()
    assert answer["metrics"] == EXPECTED
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] == 2
    assert "metrics" not in (await app.post("/v1/responses", json=body)).json()


async def test_the_chunk_with_the_usage_has_them(tokenizer: PreTrainedTokenizerFast) -> None:
    app = scripted(tokenizer)
    fields: dict[str, Any] = FIELD | WITH_USAGE
    for chunks in (await app.completion_chunks(**fields), await app.chat_chunks(**fields)):
        assert chunks[-1]["metrics"] == EXPECTED
        assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
        assert not any("metrics" in chunk for chunk in chunks[:-1])


async def test_a_stream_without_that_chunk_refuses_them(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    body = {"model": "tiny", "prompt": "a", "stream": True} | FIELD
    response = await scripted(tokenizer).post("/v1/completions", json=body)
    name = "include_speculation_metrics"
    assert_error(response, 400, "invalid_value", name, "needs stream_options.include_usage")


async def test_choices_are_counted_together(tokenizer: PreTrainedTokenizerFast) -> None:
    answer = await scripted(tokenizer).completion(n=2, **FIELD)
    counts = answer["metrics"]["speculative_decoding"]
    assert counts["acceptance_histogram"] == {"0": 2, "1": 2, "2": 2}
    assert (counts["num_spec_steps"], counts["mean_acceptance_length"]) == (6, 2.0)


async def test_without_a_draft_there_is_no_rate(tokenizer: PreTrainedTokenizerFast) -> None:
    (a, *_) = tokenizer("a", add_special_tokens=False)["input_ids"]
    app = App(tokenizer, [TokenDelta("", (a,), FinishReason.LENGTH)])
    counts = (await app.completion(**FIELD))["metrics"]["speculative_decoding"]
    assert counts["mean_acceptance_length"] is None
    assert counts["draft_acceptance_rate"] is None
    assert counts["acceptance_histogram"] == {}
    assert counts["num_spec_steps"] == 0
