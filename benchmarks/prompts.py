"""Prompts of the benchmarks: first turns of a JSONL file, in the model's chat template."""

import json
from pathlib import Path

from transformers import PreTrainedTokenizerFast

DEFAULT_PROMPTS = Path("../shared/data/prompts")


def chat_prompts(
    path: Path, tokenizer: PreTrainedTokenizerFast, count: int | None = None
) -> list[list[int]]:
    """Token ids of the first turn of each line (`turns`), the first `count` of them."""
    lines = path.read_text().splitlines()[:count]
    prompts: list[list[int]] = []
    for line in lines:
        messages = [{"role": "user", "content": json.loads(line)["turns"][0]}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompts.append(tokenizer.encode(str(text), add_special_tokens=False))
    return prompts
