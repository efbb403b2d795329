"""Tokenizers of every kind of decoder, and tokens of theirs."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from tokenizers import decoders
from tokenizers.decoders import Decoder
from transformers import PreTrainedTokenizerFast

from tests.tiny_tokenizer import (
    byte_fallback_tokenizer,
    byte_level_tokenizer,
    metaspace_tokenizer,
)

BUILDERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte-level": byte_level_tokenizer,
    "byte-fallback": byte_fallback_tokenizer,
    "metaspace": metaspace_tokenizer,
    "byte-level in a sequence": lambda: with_decoder(
        byte_level_tokenizer(), decoders.ByteLevel(), decoders.Fuse()
    ),
    "fused before a replacement": lambda: with_decoder(
        byte_fallback_tokenizer(),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Replace("▁", " "),
    ),
}


def with_decoder(tokenizer: PreTrainedTokenizerFast, *parts: Decoder) -> PreTrainedTokenizerFast:
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(list(parts))
    return tokenizer


def whole(
    tokenizer: PreTrainedTokenizerFast, ids: Sequence[int], *, skips_special: bool = True
) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=skips_special)
    assert isinstance(text, str)
    return text


def letters(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[str]) -> list[int]:
    ids = [tokenizer.backend_tokenizer.token_to_id(token) for token in tokens]
    assert None not in ids
    return [token_id for token_id in ids if token_id is not None]


def token_lists(tokenizer: PreTrainedTokenizerFast) -> Any:
    """Ids at random (mostly invalid UTF-8) and ids of real text; a few beyond the vocabulary."""
    random_ids = st.lists(st.integers(0, len(tokenizer) + 5), max_size=24)
    text_ids = st.text("ab é好🙂\n�", max_size=12).map(
        lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"])
    )
    return st.lists(random_ids | text_ids, max_size=4).map(
        lambda parts: list(itertools.chain.from_iterable(parts))
    )
