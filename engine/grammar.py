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

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence as ReadOnly
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Protocol

import llguidance
from torch import Tensor

from engine.errors import EngineFull, GrammarError
from engine.grammars.cursor import CompiledGrammar, Cursor, short_reason
from engine.grammars.source import to_llguidance
from engine.grammars.vocabulary import load_vocabulary
from engine.request import GrammarSpec

_KEPT_GRAMMARS = 128
_MOST_PENDING = 64
"""Grammars that may wait to be compiled: one after the other, each in a second at most."""
_RETRY_S = 1
_STACK_BYTES = 256 * 2**20
_LIMITS = llguidance.LLParserLimits(
    max_items_in_row=1000,  # an ambiguous grammar takes quadratic time until it gets there
    max_lexer_states=50_000,  # of 1 to 2 KB, for each cursor
    verbose_errors=False,
)


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
        self._compiled: OrderedDict[GrammarSpec, Future[CompiledGrammar]] = OrderedDict()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    def compile(self, spec: GrammarSpec) -> None:
        """Make `cursor(spec)` cheap. Raises GrammarError, saying what is wrong with the spec."""
        self._get(spec)

    async def prepare(self, spec: GrammarSpec) -> None:
        """As `compile`, with no thread that waits for it. Cancelling leaves the compiling to others
        who may want it too. Raises GrammarError, and EngineFull where too many are waiting."""
        compiled = self._started(spec, _MOST_PENDING)
        try:
            await asyncio.shield(asyncio.wrap_future(compiled))
        except GrammarError as error:
            raise GrammarError(str(error)) from error

    def cursor(self, spec: GrammarSpec) -> GrammarCursor:
        """A cursor at the beginning. Raises GrammarError."""
        return Cursor(lambda: self._get(spec), self._vocab_size, self._eos_token_ids)

    def _get(self, spec: GrammarSpec) -> CompiledGrammar:
        try:
            return self._started(spec).result()
        except GrammarError as error:
            # Its own for each caller: raising an exception changes it.
            raise GrammarError(str(error)) from error

    def _started(
        self, spec: GrammarSpec, most_pending: int | None = None
    ) -> Future[CompiledGrammar]:
        """The one that is kept; a new one if there is none, or if its lexer gave up. Raises
        EngineFull when a new one would have to wait with more than `most_pending`."""
        with self._lock:
            compiled = self._compiled.get(spec)
            is_new = compiled is None or _gave_up(compiled)
            if compiled is None or is_new:
                pending = sum(not one.done() for one in self._compiled.values())
                if most_pending is not None and pending >= most_pending:
                    raise EngineFull(
                        f"{pending} grammars are waiting to be compiled already", _RETRY_S
                    )
                compiled = self._compiled[spec] = self._submit(spec)
                while len(self._compiled) > _KEPT_GRAMMARS:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(spec)
        if is_new:
            # Without the lock: it is called here and now where the grammar is ready already.
            compiled.add_done_callback(lambda done: self._forget_if_refused(spec, done))
        return compiled

    def _forget_if_refused(self, spec: GrammarSpec, compiled: Future[CompiledGrammar]) -> None:
        with self._lock:
            if compiled.exception() is not None and self._compiled.get(spec) is compiled:
                del self._compiled[spec]

    def _submit(self, spec: GrammarSpec) -> Future[CompiledGrammar]:
        # llguidance recurses along chains of references, and a full stack kills the process.
        previous = threading.stack_size(_STACK_BYTES)
        try:
            return self._worker.submit(self._compile, spec)
        finally:
            threading.stack_size(previous)

    def _compile(self, spec: GrammarSpec) -> CompiledGrammar:
        source = to_llguidance(spec)
        matcher = llguidance.LLMatcher(self._vocabulary, source, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise GrammarError(f"{spec.kind}: {short_reason(matcher)}")
        compiled = CompiledGrammar(matcher)
        # Finds what allows nothing at all, and spares each copy the first mask's work.
        try:
            Cursor(lambda: compiled, self._vocab_size, self._eos_token_ids).mask(())
        except GrammarError as error:
            raise GrammarError(f"{spec.kind}: {error}") from error
        return compiled

    @cached_property
    def _vocabulary(self) -> llguidance.LLTokenizer:
        return load_vocabulary(self._folder, self._vocab_size, self._eos_token_ids)


def _gave_up(compiled: Future[CompiledGrammar]) -> bool:
    return compiled.done() and compiled.exception() is None and compiled.result().is_spoiled
