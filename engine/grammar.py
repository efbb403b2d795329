"""Grammars: which tokens may come next, so that an answer is JSON, say, whatever the model likes.

A `GrammarCursor` is a pure function of the tokens it is asked about; that it keeps a position, so
that the next question costs little, is not to be seen: any question may follow any other.

What a `GrammarSpec` may say:

- json_schema: draft 2020-12, as far as `grammars/json_schema.py` lists its keywords; any other
  keyword is refused by name. Properties come in the schema's order. Between tokens stands no
  whitespace, up to four blanks, or a line break and up to sixty. Characters that JSON can only
  write as \\uXXXX don't occur. json_object is the schema {"type": "object"}.
- regex: the syntax of Rust's regex crate (Unicode; no look-around, no back-references); the whole
  answer matches.
- choice: one of the strings, exactly.
- grammar: GBNF, the EBNF dialect of llama.cpp (`grammars/gbnf.py`).

llguidance does the work. It compiles in a millisecond what takes xgrammar up to seconds and, of 47
small schemas, none was compiled and then not enforced (xgrammar: 13, and 4 more refused valid
instances); what it can't do it refuses. We close two gaps, see `grammars/json_schema.py`.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence as ReadOnly
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum, auto
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Protocol

import llguidance
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import GrammarError
from engine.grammars.source import to_llguidance
from engine.grammars.vocabulary import load_vocabulary
from engine.request import GrammarSpec

_KEPT_GRAMMARS = 128
_STACK_BYTES = 256 * 2**20
_LIMITS = llguidance.LLParserLimits(
    max_items_in_row=1000,  # an ambiguous grammar takes quadratic time until it gets there
    max_lexer_states=50_000,  # of 1 to 2 KB, for each cursor
    verbose_errors=False,
)
_MAX_REASON_CHARS = 200


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

    def __init__(self, folder: Path, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._lock = threading.Lock()
        self._compiled: OrderedDict[GrammarSpec, Future[llguidance.LLMatcher]] = OrderedDict()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    def compile(self, spec: GrammarSpec) -> None:
        """Make `cursor(spec)` cheap. Raises GrammarError, saying what is wrong with the spec."""
        self._matcher(spec)

    def cursor(self, spec: GrammarSpec) -> GrammarCursor:
        """A cursor at the beginning. Raises GrammarError."""
        return _Cursor(self._matcher(spec), self._vocab_size, self._eos_token_ids)

    def _matcher(self, spec: GrammarSpec) -> llguidance.LLMatcher:
        """At the beginning; to be copied, never moved."""
        with self._lock:
            compiled = self._compiled.get(spec)
            if compiled is None:
                compiled = self._compiled[spec] = self._submit(spec)
                while len(self._compiled) > _KEPT_GRAMMARS:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(spec)
        try:
            return compiled.result()
        except GrammarError as error:
            with self._lock:
                if self._compiled.get(spec) is compiled:
                    del self._compiled[spec]
            # Its own for each caller: raising an exception changes it.
            raise GrammarError(str(error)) from error

    def _submit(self, spec: GrammarSpec) -> Future[llguidance.LLMatcher]:
        # llguidance recurses along chains of references, and a full stack kills the process.
        previous = threading.stack_size(_STACK_BYTES)
        try:
            return self._worker.submit(self._compile, spec)
        finally:
            threading.stack_size(previous)

    def _compile(self, spec: GrammarSpec) -> llguidance.LLMatcher:
        source = to_llguidance(spec)
        matcher = llguidance.LLMatcher(self._vocabulary, source, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise GrammarError(f"{spec.kind}: {_reason(matcher)}")
        # Finds what allows nothing at all, and spares each copy the first mask's work.
        try:
            _Cursor(matcher, self._vocab_size, self._eos_token_ids).mask(())
        except GrammarError as error:
            raise GrammarError(f"{spec.kind}: {error}") from error
        return matcher

    @cached_property
    def _vocabulary(self) -> llguidance.LLTokenizer:
        return load_vocabulary(self._folder, self._vocab_size, self._eos_token_ids)


class _Cursor:
    """Moves a matcher to wherever it is asked about: back to the common beginning, then on."""

    def __init__(
        self, start: llguidance.LLMatcher, vocab_size: int, eos_token_ids: frozenset[int]
    ) -> None:
        self._start = start
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._eos_ids = sorted(eos_token_ids)
        self._bits = np.zeros(vocab_size // 32 + 1, np.int32)
        """One for each token, and one that says whether the grammar may end."""
        self._restart()

    def mask(self, output: ReadOnly[int]) -> Tensor | None:
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
            place = self._go_to(output)
            if place is not _Place.WITHIN or not self._may_end():
                return place is _Place.BEHIND_EOS
            allowed, _ = self._allowed()
        except GrammarError:
            return False
        return not allowed.any()

    def _go_to(self, output: ReadOnly[int]) -> "_Place":
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
        reason = _reason(self._matcher)
        self._restart()
        return GrammarError(f"the grammar is too complex here: {reason}")

    def _restart(self) -> None:
        self._matcher = self._start.deep_copy()
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


def _reason(matcher: llguidance.LLMatcher) -> str:
    text = " ".join(matcher.get_error().replace("<non-verbose/>", "").split())
    text, _, _ = text.partition(". Enable '")  # advice for programmers
    return text if len(text) <= _MAX_REASON_CHARS else text[:_MAX_REASON_CHARS] + "..."
