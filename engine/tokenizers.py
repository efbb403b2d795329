"""Whether two tokenizers mean the same by the same token ids.

A draft model reads and writes the target's token ids and no text. So ids must stand for the same
tokens, and text must be cut into them in the same way, for else the draft has learned a language
that the target does not speak. What is done around that may differ: BOS and other tokens put around
a prompt, decoding, truncation, padding, chat templates; and the embeddings' sizes.
"""

import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from engine.errors import ConfigError
from engine.model import load_tokenizer

CUTTING = ("normalizer", "pre_tokenizer", "model", "added_tokens")
"""Parts of a tokenizer.json that decide how text is cut."""

SAMPLES = (
    'The quick brown fox doesn\'t jump over 12345.678 lazy dogs, "quotes" & co.',
    "def f(x):\n    return x ** 2  # comment\n\n\n\tif  x   :\r\n",
    "  leading, trailing  ",
    "Ünïcödé: cafe\u0301 ﬁne Ａ 你好，世界 Привет مرحبا हिन्दी 한국어 🙂👍🏽",
    "\u00a0\u200b\ufeff\x00 UPPER lower CamelCase snake_case https://example.org/?q=1",
)


def require_same_tokens(target: Path, draft: Path) -> None:
    """Raise ConfigError that shows the first token, or text, at which the draft's differs."""
    ours, theirs = (load_tokenizer(folder) for folder in (target, draft))
    difference = _different_token(ours, theirs) or _different_cut(ours, theirs)
    if difference is not None:
        raise ConfigError(
            f"drafter.model {draft}: its tokenizer differs from the target's: {difference}"
        )


def _different_token(ours: PreTrainedTokenizerFast, theirs: PreTrainedTokenizerFast) -> str | None:
    """The token that stands for another id, of the lowest id at which the two part."""
    our_ids, their_ids = ours.get_vocab(), theirs.get_vocab()
    differing = [
        (min(i for i in ids if i is not None), token, ids)
        for token in our_ids.keys() | their_ids.keys()
        if (ids := (our_ids.get(token), their_ids.get(token)))[0] != ids[1]
    ]
    if not differing:
        return None
    _, token, (our_id, their_id) = min(differing)
    named = [
        f"{who} {'has none' if token_id is None else f'has it as {token_id}'}"
        for who, token_id in (("the target", our_id), ("the draft", their_id))
    ]
    return f"token {token!r}: {', '.join(named)} ({len(differing)} tokens differ)"


def _different_cut(ours: PreTrainedTokenizerFast, theirs: PreTrainedTokenizerFast) -> str | None:
    """The first text that the two cut differently; None also where only their files differ."""
    ours_cut, theirs_cut = (_cutting(tokenizer) for tokenizer in (ours, theirs))
    if ours_cut == theirs_cut:
        return None
    texts = _texts(ours, theirs)
    cuts = (_cut(tokenizer.backend_tokenizer, texts) for tokenizer in (ours, theirs))
    for text, our_ids, their_ids in zip(texts, *cuts, strict=True):
        if our_ids != their_ids:
            pairs = enumerate(zip_longest(our_ids, their_ids))
            parting = next(i for i, (our_id, their_id) in pairs if our_id != their_id)
            return (
                f"{text!r} becomes {our_ids[parting : parting + 4]} for the target and "
                f"{their_ids[parting : parting + 4]} for the draft, from token {parting} on"
            )
    return None


def _cutting(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    whole = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: whole[name] for name in CUTTING}


def _texts(ours: PreTrainedTokenizerFast, theirs: PreTrainedTokenizerFast) -> list[str]:
    """Every token's own text, special ones amid others, and samples of what texts are like."""
    backend = ours.backend_tokenizer
    tokens = [backend.decode([token_id]) for token_id in sorted(ours.get_vocab().values())]
    added = [
        f"a{token} b {token}{token}\n"
        for tokenizer in (ours, theirs)
        for token in tokenizer.get_added_vocab()
    ]
    return [*SAMPLES, *added, *tokens]


def _cut(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return [cut.ids for cut in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
