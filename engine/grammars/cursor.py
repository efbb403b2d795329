"""A request's way through a compiled grammar, asked about any place in any order."""

from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from typing import TypeVar

import llguidance
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import GrammarError

_MAX_REASON_CHARS = 200
Answer = TypeVar("Answer")


@dataclass(eq=False, slots=True)
class CompiledGrammar:
    """A matcher at the beginning, to be copied and never moved.

    All copies share one lexer with one budget. What spends the last of it spoils the lexer for
    each of them, and for some questions they don't say so.
    """

    start: llguidance.LLMatcher
    is_spoiled: bool = False


class Cursor:
    """Moves a matcher to wherever it is asked about: back to the common beginning, then on."""

    def __init__(
        self,
        get_compiled: Callable[[], CompiledGrammar],
        vocab_size: int,
        eos_token_ids: frozenset[int],
    ) -> None:
        """`get_compiled` gives one that is not spoiled, and may raise GrammarError."""
        self._get_compiled = get_compiled
        self._compiled = get_compiled()
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._eos_ids = sorted(eos_token_ids)
        self._bits = np.zeros(vocab_size // 32 + 1, np.int32)
        """One for each token, and one that says whether the grammar may end."""
        self._restart()

    def mask(self, output: ReadOnly[int]) -> Tensor | None:
        return self._answer(self._mask, output)

    def valid_len(self, output: ReadOnly[int], draft: ReadOnly[int]) -> int:
        try:
            if self._go_to(output) is not _Place.WITHIN:
                return 0
            count = self._consume(draft)
        except GrammarError:
            return 0
        if count < len(draft) and draft[count] in self._eos_token_ids and self._may_end():
            count += 1
        return count

    def has_ended(self, output: ReadOnly[int]) -> bool:
        try:
            return self._answer(self._has_ended, output)
        except GrammarError:
            return False

    def _answer(self, question: Callable[[ReadOnly[int]], Answer], output: ReadOnly[int]) -> Answer:
        try:
            return question(output)
        except GrammarError:
            if not self._compiled.is_spoiled:
                raise
            # Others may have spent the lexer's budget; a new one has all of it.
            return question(output)

    def _mask(self, output: ReadOnly[int]) -> Tensor | None:
        place = self._go_to(output)
        if place is _Place.NOWHERE:
            raise GrammarError("the grammar does not allow the text so far")
        if place is _Place.BEHIND_EOS:
            return None
        allowed, may_end = self._allowed()
        if may_end:
            allowed[self._eos_ids] = True
        if allowed.any():
            return torch.from_numpy(allowed)
        if may_end:
            return None
        raise GrammarError("no token of this model can go on with the grammar")

    def _has_ended(self, output: ReadOnly[int]) -> bool:
        place = self._go_to(output)
        if place is not _Place.WITHIN or not self._may_end():
            return place is _Place.BEHIND_EOS
        allowed, _ = self._allowed()
        return not allowed.any()

    def _go_to(self, output: ReadOnly[int]) -> "_Place":
        if self._compiled.is_spoiled:
            self._compiled = self._get_compiled()
            self._restart()
        tokens = output if isinstance(output, list) else list(output)
        common = _num_common(self._tokens, tokens)
        if (surplus := len(self._tokens) - common) > 0:
            if not self._matcher.rollback(surplus):
                self._restart()
                common = 0
            del self._tokens[common:]
        self._consume(tokens[common:])
        match tokens[len(self._tokens) :]:
            case []:
                return _Place.WITHIN
            case [token] if token in self._eos_token_ids and self._may_end():
                return _Place.BEHIND_EOS
            case _:
                return _Place.NOWHERE

    def _consume(self, tokens: ReadOnly[int]) -> int:
        """Goes on with `tokens` as far as they are allowed; returns how many."""
        if not tokens:
            return 0
        if max(tokens) >= self._vocab_size:  # the sign for the end is no token, nor what is beyond
            tokens = list(takewhile(self._vocab_size.__gt__, tokens))
        count = self._matcher.try_consume_tokens(list(tokens))
        if self._matcher.is_error():
            raise self._too_complex()
        self._tokens += tokens[:count]
        return count

    def _may_end(self) -> bool:
        return self._matcher.is_accepting()

    def _allowed(self) -> tuple[NDArray[np.bool_], bool]:
        """Which tokens go on with the text, [vocab], and whether it may end here."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if self._matcher.is_error():
            if self._matcher.get_error().startswith("NoExtensionBias"):
                self._restart()
                return np.zeros(self._vocab_size, np.bool_), False
            raise self._too_complex()
        bools = np.unpackbits(
            self._bits.view(np.uint8), count=self._vocab_size + 1, bitorder="little"
        ).view(np.bool_)
        return bools[:-1], bool(bools[-1])

    def _too_complex(self) -> GrammarError:
        reason = short_reason(self._matcher)
        if reason.startswith("lexer error"):
            self._compiled.is_spoiled = True
        self._restart()
        return GrammarError(f"the grammar is too complex here: {reason}")

    def _restart(self) -> None:
        self._matcher = self._compiled.start.deep_copy()
        self._tokens: list[int] = []
        """What the matcher has consumed."""


class _Place(Enum):
    WITHIN = auto()
    """The tokens are a beginning of something that the grammar allows."""
    BEHIND_EOS = auto()
    """They are something that the grammar allows, and EOS."""
    NOWHERE = auto()


def _num_common(a: list[int], b: list[int]) -> int:
    """Length of the common beginning, without a loop over tokens."""
    low, high = 0, min(len(a), len(b)) + 1
    if a[: high - 1] == b[: high - 1]:
        return high - 1
    while high - low > 1:  # a[:low] is b[:low], a[:high] is not b[:high]
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def short_reason(matcher: llguidance.LLMatcher) -> str:
    """Why the library gave up, in one line."""
    text = " ".join(matcher.get_error().replace("<non-verbose/>", "").split())
    text, _, _ = text.partition(". Enable '")  # advice for programmers
    return text if len(text) <= _MAX_REASON_CHARS else text[:_MAX_REASON_CHARS] + "..."
