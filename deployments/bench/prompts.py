"""What is asked: prompts of a file, or Paceline's own; whole, or cut and repeated to a length."""

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from engine.distill.sources import Chat, prompt_ids, read_prompts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CHARS_PER_TOKEN = 4
_OWN = "prompts.jsonl"


def read_texts(path: Path | None) -> list[str]:
    """The first turn of each line, or the line's text; None: Paceline's own. Raises ConfigError."""
    if path is None:
        with as_file(files("deployments.bench") / _OWN) as own:
            return read_texts(own)
    return [
        source.turns[0] if isinstance(source, Chat) else source.text
        for source in read_prompts(path)
    ]


class Fitting:
    """Texts of a given length in tokens, by a tokenizer, or by guess where there is none."""

    def __init__(self, texts: Sequence[str], tokenizer: "PreTrainedTokenizerFast | None") -> None:
        self._texts = texts
        self._tokenizer = tokenizer
        # The chat template's own words are part of a prompt.
        self._around = (
            0
            if tokenizer is None
            else len(prompt_ids(("x",), (), tokenizer)) - len(tokenizer.tokenize("x"))
        )

    def text(self, prompt: int, num_tokens: int | None) -> str:
        """Of `num_tokens` with the chat template; the texts from `prompt` on, as often as needed.
        Without a length: text number `prompt`, as it is."""
        if num_tokens is None:
            return self._texts[prompt % len(self._texts)]
        wanted = max(1, num_tokens - self._around)
        joined, count = "", 0
        while count < wanted:
            more = self._texts[prompt % len(self._texts)] + "\n\n"
            joined, count, prompt = joined + more, count + self._count(more), prompt + 1
        if self._tokenizer is None:
            return joined[: wanted * _CHARS_PER_TOKEN]
        ids = self._tokenizer.encode(joined, add_special_tokens=False)[:wanted]
        return str(self._tokenizer.decode(ids))

    def _count(self, text: str) -> int:
        if self._tokenizer is None:
            return max(1, len(text) // _CHARS_PER_TOKEN)
        return len(self._tokenizer.encode(text, add_special_tokens=False))
