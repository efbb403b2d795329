"""From a body to requests: words to tokens, what the model lacks, and how the answer is read."""

import json
import threading
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from deployments.generation import prompts
from deployments.generation.job import Job
from deployments.generation.preparation import derived_seed
from deployments.service import GenerationService
from deployments.text.chat_template import render_chat
from engine.errors import RequestError
from tests.deployments.fake_loop import FakeLoop
from tests.deployments.tools import templates
from tests.tiny_tokenizer import byte_fallback_tokenizer, byte_level_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


async def prepared(tokenizer: PreTrainedTokenizerFast, **fields: Any) -> Job:
    service = GenerationService(
        FakeLoop([]), tokenizer, "tiny", max_model_len=64, vocab_size=len(tokenizer)
    )
    return await service.prepare_completion({"model": "tiny", "prompt": "The"} | fields)


def ids(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


async def test_a_bad_word_is_barred_alone_and_behind_a_space(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    job = await prepared(tokenizer, bad_words=["fox", " dog"])
    assert job.requests[0].sampling.bad_words == tuple(
        ids(tokenizer, text) for text in ("fox", " fox", "dog", " dog")
    )


async def test_a_bad_word_may_be_white_space(tokenizer: PreTrainedTokenizerFast) -> None:
    job = await prepared(tokenizer, bad_words=["\n"])
    assert ids(tokenizer, "\n") in job.requests[0].sampling.bad_words


async def test_ways_to_write_a_bad_word_that_are_one_stand_once() -> None:
    # This tokenizer puts a space before every text.
    tokenizer = byte_fallback_tokenizer()
    job = await prepared(tokenizer, bad_words=["b", "b"])
    sequences = job.requests[0].sampling.bad_words
    assert len(set(sequences)) == len(sequences)


async def test_many_bad_words_are_tokenised_like_few(tokenizer: PreTrainedTokenizerFast) -> None:
    words = [f"fox{number}" for number in range(400)]  # in a thread
    job = await prepared(tokenizer, bad_words=words)
    assert job.requests[0].sampling.bad_words[-1] == ids(tokenizer, " fox399")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"logit_bias": {"384": 1}}, "logit_bias"),
        ({"stop_token_ids": [384]}, "stop_token_ids"),
        ({"prompt": [384], "echo": True}, "prompt"),
        ({"prompt": [[5], [384]]}, "prompt[1]"),
        ({"prompt": [[5], [384]], "echo": True}, "prompt[1]"),
    ],
)
async def test_tokens_that_the_model_lacks(
    tokenizer: PreTrainedTokenizerFast, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestError, match="between 0 and 383, got 384") as caught:
        await prepared(tokenizer, **fields)
    assert caught.value.field == field


async def test_min_tokens_and_the_shown_stop_string_reach_the_reading(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    job = await prepared(tokenizer, stop="a", min_tokens=3, include_stop_str_in_output=True)
    (reading,) = job.readings
    rule = reading.stop
    assert (rule.strings, rule.min_tokens, rule.is_shown) == (("a",), 3, True)


async def test_defaults_ask_for_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    job = await prepared(tokenizer)
    (reading,) = job.readings
    assert not reading.keeps_tokens
    assert reading.make_parser is None
    assert job.num_prompt_logprobs == (0,)
    assert job.requests[0].priority == 0


def test_seeds_of_choices_differ_everywhere_and_never_change() -> None:
    seeds = {derived_seed(seed, index) for seed in range(-8, 8) for index in range(1, 128)}
    assert len(seeds) == 16 * 127
    assert derived_seed(5, 1) == -7718033652045977177


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": ""}] * 200,
        [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call",
                        "type": "function",
                        "function": {"name": "f", "arguments": json.dumps({"a": "b" * 4000})},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call", "content": "c"},
        ],
    ],
    ids=["many empty messages", "long calls"],
)
async def test_a_long_chat_of_short_texts_is_read_in_a_thread(
    messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def render(*arguments: Any, **named: Any) -> str:
        threads.append(threading.current_thread())
        return render_chat(*arguments, **named)

    monkeypatch.setattr(prompts, "render_chat", render)
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = templates.HERMES
    service = GenerationService(
        FakeLoop([]), tokenizer, "tiny", max_model_len=100_000, vocab_size=len(tokenizer)
    )
    await service.prepare_chat({"model": "tiny", "messages": messages})
    await service.prepare_chat({"model": "tiny", "messages": messages[:1]})
    assert [thread is threading.current_thread() for thread in threads] == [False, True]
