"""Chat templates: what they make of messages, and what they refuse."""

import pytest
from transformers import PreTrainedTokenizerFast

from deployments.text.chat_template import render_chat
from engine.errors import RequestError
from tests.tiny_tokenizer import byte_level_tokenizer


def test_chat_template_asks_for_an_answer(byte_level: PreTrainedTokenizerFast) -> None:
    text = render_chat(byte_level, [{"role": "user", "content": "hi"}])
    assert text == "<|bos|><|user|>hi<|end|><|assistant|>"


def test_chat_template_refuses_in_its_own_words(byte_level: PreTrainedTokenizerFast) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "system", "content": "no"}]
    with pytest.raises(RequestError, match="a system message must come first") as caught:
        render_chat(byte_level, messages)
    assert caught.value.field == "messages"


def test_a_model_without_a_chat_template_says_so() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(RequestError, match="no chat template; send a prompt to /v1/completions"):
        render_chat(tokenizer, [{"role": "user", "content": "hi"}])
