"""Prompts and words to tokens, with one tokenizer; long ones off the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from deployments.json_values import show
from deployments.text.chat_template import render_chat
from deployments.text.detokenizer import Detokenizer
from deployments.text.token_texts import decode_with_offsets
from engine.errors import RequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SHORT_TEXT_CHARACTERS = 1000
"""Tokenised where it is, in well under a millisecond; longer texts go to a thread."""
MESSAGE_CHARACTERS = 30
"""That a template writes around one, about."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Prompt:
    token_ids: tuple[int, ...]
    text: str = ""
    """Of a prompt that is to be shown."""
    offsets: tuple[int, ...] = ()
    """For each of its tokens, the characters of the text before it."""


class PromptTokenizer:
    """Immutable, and so are the results: threads share it."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        *,
        is_answered: bool = True,
    ) -> Prompt:
        """`is_answered`: the assistant's answer is to follow.

        Raises RequestError where the model's template refuses the messages."""

        def work() -> Prompt:
            # The template writes the special tokens itself.
            text = render_chat(self._tokenizer, messages, tools, add_generation_prompt=is_answered)
            return Prompt(self._encode(text, special=False))

        # Tools are often longer than what is said about them, and so are calls of them.
        has_tools = tools is not None or any("tool_calls" in message for message in messages)
        size = sum(len(message["content"]) + MESSAGE_CHARACTERS for message in messages)
        return await _done(None if has_tools else size, work)

    async def plain(
        self, prompt: str | tuple[int, ...], *, special: bool = True, field: str = "prompt"
    ) -> Prompt:
        """`special`: with the tokens that the model wants around a text. `field`: what errors call
        it.

        Raises RequestError for a token that the model doesn't have."""
        if isinstance(prompt, str):
            text = prompt
            return await _done(len(text), lambda: Prompt(self._encode(text, special=special)))
        self.check_ids(field, prompt)
        return Prompt(prompt)

    async def shown(
        self, prompt: str | tuple[int, ...], detokenizer: Detokenizer, *, field: str = "prompt"
    ) -> Prompt:
        """As `plain`, with its text and the places of its tokens there."""
        if isinstance(prompt, str):
            text = prompt
            return await _done(len(text), lambda: self._shown_text(text))
        self.check_ids(field, prompt)
        token_ids = prompt
        return await _done(
            len(token_ids), lambda: Prompt(token_ids, *decode_with_offsets(detokenizer, token_ids))
        )

    async def text(self, field: str, token_ids: tuple[int, ...]) -> str:
        """Their text, special tokens shown. Raises RequestError for one that the model lacks."""
        self.check_ids(field, token_ids)
        return await _done(len(token_ids), lambda: str(self._tokenizer.decode(list(token_ids))))

    async def bad_words(self, words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Each as it is tokenised by itself and, as within a text, behind a space.

        Raises RequestError for one that makes no token.
        """
        if not words:
            return ()
        return await _done(sum(map(len, words)), lambda: self._bad_words(words))

    def check_ids(self, field: str, token_ids: Sequence[int]) -> None:
        """Raises RequestError unless they all are in the vocabulary."""
        for index, token_id in enumerate(token_ids):
            if not 0 <= token_id < self._vocab_size:
                raise RequestError(
                    field,
                    f"{field}[{index}] must be a token id between 0 and {self._vocab_size - 1}, "
                    f"got {show(token_id)}",
                )

    def _bad_words(self, words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        sequences: dict[tuple[int, ...], None] = {}
        for word in words:
            bare = word.lstrip() or word
            for text in (bare, f" {bare}"):
                token_ids = self._encode(text, special=False)
                if not token_ids:
                    raise RequestError(
                        "bad_words",
                        f"bad_words must make tokens, got {show(word)}, which makes none",
                    )
                sequences[token_ids] = None
        return tuple(sequences)

    def _shown_text(self, text: str) -> Prompt:
        encoded = self._tokenizer(text, verbose=False, return_offsets_mapping=True)
        # Special tokens that are added stand at 0, also those at the end.
        offsets = accumulate((start for start, _ in encoded["offset_mapping"]), max)
        return Prompt(tuple(encoded["input_ids"]), text, tuple(offsets))

    def _encode(self, text: str, *, special: bool) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])


async def _done(size: int | None, work: Callable[[], Result]) -> Result:
    """`work()`: here for a text of a small size, in a thread for a large one, or an unknown."""
    if size is not None and size <= SHORT_TEXT_CHARACTERS:
        return work()
    return await asyncio.to_thread(work)
