"""The prompts: chats, texts to be repeated with a small change, and long prompts for one token."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from benchmarks.prompts import chat_prompts, first_turns

CHAT, REWRITING, FIRST_TOKEN = "chat", "rewriting", "first token"
FIRST_TOKEN_PROMPT = 512
"""Tokens."""
FEWEST_WORDS = 45
"""Of a text that is to be rewritten: more than 64 tokens, so that the copy fills the answer."""
FIRST_MARK = 1000
"""The first token id that marks a measurement; those below are bytes and control tokens."""


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    prompts: tuple[tuple[int, ...], ...]

    def batch(self, size: int, repeat: int, mark: int) -> list[list[int]]:
        """`size` prompts, others in each repeat, all with a first token that `mark` chooses.

        Measurements with different marks share no prefix, so that nobody's prefix cache answers.
        """
        first = repeat * size
        chosen = [self.prompts[(first + i) % len(self.prompts)] for i in range(size)]
        return [[FIRST_MARK + mark, *prompt] for prompt in chosen]


def workloads(folder: Path, tokenizer: PreTrainedTokenizerFast) -> list[Workload]:
    """From `mt_bench_80.jsonl` and `gsm8k_80.jsonl` in `folder`."""
    questions = first_turns(folder / "mt_bench_80.jsonl")
    texts = [*first_turns(folder / "gsm8k_80.jsonl"), *questions]
    tasks = [rewriting_task(text) for text in texts if len(text.split()) >= FEWEST_WORDS]
    prose = [token for prompt in chat_prompts(questions, tokenizer) for token in prompt]
    length = FIRST_TOKEN_PROMPT - 1  # and the mark
    windows = [prose[i : i + length] for i in range(0, len(prose) - length, length)]
    return [
        _workload(CHAT, chat_prompts(questions, tokenizer)),
        _workload(REWRITING, chat_prompts(tasks, tokenizer)),
        _workload(FIRST_TOKEN, windows),
    ]


def rewriting_task(text: str) -> str:
    """A request to repeat `text` with its longest word in capitals."""
    word = max(re.findall(r"[A-Za-z]+", text), key=len)
    return (
        f'Repeat the following text exactly as it is, but write the word "{word}" as '
        f'"{word.upper()}". Answer with the text alone.\n\n{text}'
    )


def _workload(name: str, prompts: Sequence[Sequence[int]]) -> Workload:
    return Workload(name, tuple(map(tuple, prompts)))
