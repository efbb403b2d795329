"""`include_draft_marks`: which tokens were kept from a draft, and where others were rejected."""

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from engine.request import FinishReason, TokenDelta
from tests.deployments.api_app import CHAT, App, assert_error
from tests.tiny_tokenizer import byte_level_tokenizer

TEXT = "The quick brown fox 🙂 jumps"


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


def drafted(tokenizer: PreTrainedTokenizerFast) -> list[TokenDelta]:
    """Steps of three tokens: two kept of four drafted, and one of the target's own."""
    encoded = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    steps = [tuple(encoded[start : start + 3]) for start in range(0, len(encoded), 3)]
    deltas = [TokenDelta("", step, num_drafted=4, num_accepted=min(2, len(step))) for step in steps]
    return [*deltas, TokenDelta("", (1,), FinishReason.STOP, ends_with_stop_token=True)]


def expected(tokenizer: PreTrainedTokenizerFast) -> list[dict[str, Any]]:
    """Each token where its text begins; parts of a character at its place."""
    encoded = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    marks = []
    for index in range(len(encoded)):
        before = str(tokenizer.decode(encoded[:index])).rstrip("\ufffd")
        last_of_step = index % 3 == 2 or index == len(encoded) - 1
        num_kept = min(2, index % 3 + 1)
        marks.append(
            {
                "offset": len(before),
                "drafted": index % 3 < 2,
                "rejected": 4 - num_kept if last_of_step else 0,
            }
        )
    return marks


async def test_marks_of_a_stream_are_those_of_the_whole_answer(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    app = App(tokenizer, drafted(tokenizer))
    choice = (await app.chat(include_draft_marks=True))["choices"][0]
    assert choice["message"]["content"] == TEXT
    assert choice["logprobs"] is None
    assert choice["draft_marks"] == expected(tokenizer)
    chunks = await app.chat_chunks(include_draft_marks=True)
    streamed = [
        mark
        for chunk in chunks
        for part in chunk["choices"]
        for mark in part.get("draft_marks") or []
    ]
    assert streamed == choice["draft_marks"]


async def test_marks_add_up_to_the_usage(tokenizer: PreTrainedTokenizerFast) -> None:
    answer = await App(tokenizer, drafted(tokenizer)).chat(include_draft_marks=True)
    marks = answer["choices"][0]["draft_marks"]
    details = answer["usage"]["completion_tokens_details"]
    assert sum(mark["drafted"] for mark in marks) == details["accepted_prediction_tokens"]
    assert sum(mark["rejected"] for mark in marks) == details["rejected_prediction_tokens"]


async def test_without_being_asked_for_there_are_none(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, drafted(tokenizer))
    assert "draft_marks" not in (await app.chat())["choices"][0]
    for chunk in await app.chat_chunks(include_draft_marks=False):
        assert all("draft_marks" not in choice for choice in chunk["choices"])


async def test_nothing_is_marked_behind_a_stop_string(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, drafted(tokenizer))
    choice = (await app.chat(include_draft_marks=True, stop="brown"))["choices"][0]
    assert choice["message"]["content"] == "The quick "
    assert all(mark["offset"] < len("The quick ") for mark in choice["draft_marks"])


async def test_where_marks_mean_nothing_they_are_refused(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    app = App(tokenizer, drafted(tokenizer))
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = CHAT | {"include_draft_marks": True, "tools": [tool]}
    response = await app.post("/v1/chat/completions", json=body)
    says = "include_draft_marks can't be used with tools"
    assert_error(response, 400, "invalid_value", "include_draft_marks", says)
    for path, body in (
        ("/v1/completions", {"model": "tiny", "prompt": "The"}),
        ("/v1/responses", {"model": "tiny", "input": "The"}),
    ):
        response = await app.post(path, json=body | {"include_draft_marks": True})
        assert response.status_code == 400, path
        assert response.json()["error"]["param"] == "include_draft_marks"
