"""Prompts from a JSONL file of chats, in a model's chat template."""

import json
from collections.abc import Iterable
from pathlib import Path

from transformers import PreTrainedTokenizerFast

DEFAULT_PROMPTS = Path("../shared/data/prompts")


def first_turns(path: Path, count: int | None = None) -> list[str]:
    """The first turn of each line (`turns`) of a JSONL file, of the first `count` lines."""
    return [json.loads(line)["turns"][0] for line in path.read_text().splitlines()[:count]]


def chat_prompts(texts: Iterable[str], tokenizer: PreTrainedTokenizerFast) -> list[list[int]]:
    """Token ids of each text as a user's only message, ready for the assistant's answer."""
    prompts: list[list[int]] = []
    for text in texts:
        messages = [{"role": "user", "content": text}]
        chat = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompts.append(tokenizer.encode(str(chat), add_special_tokens=False))
    return prompts
