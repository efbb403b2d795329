"""The tokens as bytes, in the shape that llguidance reads."""

from collections.abc import Sequence
from pathlib import Path

import llguidance

from engine.errors import GrammarError
from engine.model import load_tokenizer


def load_vocabulary(
    folder: Path, vocab_size: int, eos_token_ids: frozenset[int]
) -> llguidance.LLTokenizer:
    """The tokenizer of `folder` for a model with `vocab_size` embedding rows, as llguidance has it.

    Special tokens, the model's EOS tokens and rows without a token stand for no bytes, so that no
    text allows them. Token `vocab_size`, which no model has, is the one that says "the grammar may
    end here"; what a model's EOS tokens are, and whether it has any, is for the cursor alone.
    Raises GrammarError when the tokenizer does not tell which bytes its tokens stand for.
    """
    backend = load_tokenizer(folder).backend_tokenizer
    # Beyond these, ids of the tokenizer may have no row in the model.
    num_tokens = min(vocab_size, backend.get_vocab_size(with_added_tokens=True))
    try:
        known = llguidance.LLTokenizer(backend.to_str())
    except ValueError as error:
        raise GrammarError(f"no grammar works with this model's tokenizer: {error}") from error
    tokens = [
        b""
        if token in eos_token_ids or known.is_special_token(token)
        else known.decode_bytes([token])
        for token in range(num_tokens)
    ]
    padding = [b""] * (vocab_size + 1 - num_tokens)
    return llguidance.LLTokenizer(_TokenBytes([*tokens, *padding]))


class _TokenBytes(llguidance.TokenizerWrapper):
    """The last token is the end; nothing is ever tokenised, see `source.py`."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens
        self.eos_token_id = len(tokens) - 1
        self.bos_token_id = None
        self.special_token_ids = ()
        self.is_tokenizer_wrapper = True

    def __call__(self, s: str) -> list[int]:
        raise NotImplementedError("no_forcing is set in every grammar")
