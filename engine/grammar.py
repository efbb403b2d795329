"""Grammars: which tokens may come next, so that an answer is JSON, say, whatever the model likes.

TO BE WRITTEN; this interface is fixed.

A `GrammarCursor` is a pure function of the tokens it is asked about; that it keeps a position, so
that the next question costs little, is not to be seen: any question may follow any other.
"""

from collections.abc import Sequence as ReadOnly
from pathlib import Path
from typing import Protocol

from torch import Tensor

from engine.request import GrammarSpec


class GrammarCursor(Protocol):
    """One request's way through a grammar."""

    def mask(self, output: ReadOnly[int]) -> Tensor | None:
        """Which tokens may follow `output`: bool [vocab], the model's EOS tokens where it may end.

        None where nothing may follow, not even EOS, because the grammar has ended. Raises
        GrammarError when `output` is not a beginning of anything the grammar allows, or when the
        library gives up (its limits).
        """

    def valid_len(self, output: ReadOnly[int], draft: ReadOnly[int]) -> int:
        """How many tokens of `draft` the grammar lets follow `output`. Never raises."""

    def has_ended(self, output: ReadOnly[int]) -> bool:
        """Whether nothing but the end may follow `output`. Never raises."""


class GrammarCompiler:
    """Compiles grammars for one tokenizer; thread-safe, and keeps the latest ones."""

    def __init__(self, folder: Path, vocab_size: int, eos_token_ids: frozenset[int]) -> None: ...

    def compile(self, spec: GrammarSpec) -> None:
        """Make `cursor(spec)` cheap. Raises GrammarError, saying what is wrong with the spec."""

    def cursor(self, spec: GrammarSpec) -> GrammarCursor:
        """A cursor at the beginning. Raises GrammarError."""
        raise NotImplementedError
