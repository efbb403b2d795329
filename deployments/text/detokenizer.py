"""Token ids to text while they arrive, in time linear in their number.

All pieces that a stream's `push` and its last `flush` return are, together, `decode(ids)` of the
tokens that are not skipped. Special tokens are skipped, unless `showing_special` keeps them. How
the text of a growing sequence can be known early depends on the tokenizer's decoder:

- Byte-level (GPT-2, Llama 3, Qwen, ...): tokens are bytes, decoded one by one (`ByteLevelStream`).
- Others: neighbouring tokens are decoded together, each with a few before it (`WindowStream`).
"""

import codecs
import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from deployments.text.decoders import byte_level_alphabet, decoder_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

REPLACEMENT = "\ufffd"


class Detokenizer:
    """What all text streams of one tokenizer share. Immutable."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast") -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        special_ids = (
            token_id
            for token_id, token in self._backend.get_added_tokens_decoder().items()
            if token.special
        )
        self._special_ids = frozenset(special_ids)
        self._skipped_ids = self._special_ids
        kinds = decoder_kinds(self._backend.decoder)
        self._byte_of = self._byte_fallback_ids() if "ByteFallback" in kinds else {}
        self._is_byte_level = kinds == ["ByteLevel"]
        self._alphabet = byte_level_alphabet()
        self.splits_characters = "ByteLevel" in kinds
        """Whether one character may be spread over tokens other than raw bytes."""

    def showing_special(self, tokens: Collection[str] | None = None) -> "Detokenizer":
        """One for which these special tokens, or all, are text like any other."""
        shown = {
            token_id
            for token_id in self._special_ids
            if tokens is None or self._backend.id_to_token(token_id) in tokens
        }
        other = copy.copy(self)
        other._skipped_ids = self._special_ids - shown
        return other

    def stream(self) -> "TextStream":
        """A stream for one sequence."""
        return ByteLevelStream(self) if self._is_byte_level else WindowStream(self)

    def is_silent(self, token_id: int) -> bool:
        """Whether the token never makes text: a skipped one, or one that no text stands for."""
        return token_id in self._skipped_ids or self._backend.id_to_token(token_id) is None

    def name(self, token_id: int) -> str | None:
        """The vocabulary's own name for the token."""
        name = self._backend.id_to_token(token_id)
        assert name is None or isinstance(name, str)
        return name

    def fallback_byte(self, token_id: int) -> int | None:
        """The raw byte that the token is, under a decoder that joins runs of them into text."""
        return self._byte_of.get(token_id)

    def level_bytes(self, token_id: int) -> bytes:
        """Bytes of a token that is not silent, under a byte-level decoder."""
        token = self._backend.id_to_token(token_id)
        assert token is not None
        try:
            return bytes([self._alphabet[character] for character in token])
        except KeyError:  # an added token outside the alphabet stands for itself
            return token.encode()

    def decode_part(self, token_ids: Sequence[int]) -> str:
        """Text of neighbouring tokens, none silent, which may lack the context of those before."""
        return self._backend.decode(token_ids, skip_special_tokens=False)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a whole sequence of tokens, none silent."""
        text = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def _byte_fallback_ids(self) -> dict[int, int]:
        byte_of = {}
        for byte in range(256):
            for name in (f"<0x{byte:02X}>", f"<0x{byte:02x}>"):
                token_id = self._backend.token_to_id(name)
                if token_id is not None:
                    byte_of[token_id] = byte
        return byte_of


class TextStream(ABC):
    """Text of a growing sequence."""

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._detokenizer = detokenizer
        self._token_ids: list[int] = []
        self._pieces: list[str] = []

    def settle(self, token_id: int) -> str:
        """Text of tokens before this one that is certain because it comes next. Its own text then
        comes with `push`, which gives both where this is not called."""
        if self._detokenizer.is_silent(token_id):
            return ""
        piece = self._settled(token_id)
        if piece:
            self._pieces.append(piece)
        return piece

    def push(self, token_id: int) -> str:
        """Text that is certain with this token; often its own, sometimes none yet."""
        if self._detokenizer.is_silent(token_id):
            return ""
        self._token_ids.append(token_id)
        piece = self._certain(token_id)
        if piece:
            self._pieces.append(piece)
        return piece

    def look_ahead(self) -> str:
        """Text that pushes since the last call add to what waits, if the sequence ended here."""
        return ""

    def flush(self) -> str:
        """Whatever was held back, as the sequence has ended."""
        given = "".join(self._pieces)
        whole = self._detokenizer.decode(self._token_ids)
        rest = whole[len(given) :] if whole.startswith(given) else ""
        self._pieces.append(rest)
        return rest

    @abstractmethod
    def _settled(self, token_id: int) -> str:
        """As `settle`, for a token that is not silent."""

    @abstractmethod
    def _certain(self, token_id: int) -> str:
        """As `push`, for a token that is not silent."""


class ByteLevelStream(TextStream):
    """Under a byte-level decoder; at most an incomplete character waits."""

    def __init__(self, detokenizer: Detokenizer) -> None:
        super().__init__(detokenizer)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def _settled(self, token_id: int) -> str:
        waiting, _ = self._decoder.getstate()
        if not waiting or _goes_on(waiting, self._detokenizer.level_bytes(token_id)[:1]):
            return ""
        return self._decoder.decode(b"", final=True)

    def _certain(self, token_id: int) -> str:
        return self._decoder.decode(self._detokenizer.level_bytes(token_id))


class WindowStream(TextStream):
    """Under any other decoder.

    Only a window is decoded anew: the tokens of the last piece, for context, and those that came
    since. A run of byte-fallback tokens waits there as a whole until another token ends it, because
    nothing of it is certain before: one invalid byte, and every byte of the run becomes a U+FFFD.
    (That is why `tokenizers.decoders.DecodeStream`, which shows a run's text before its end, is not
    used.) `look_ahead` tells the text of a run that is valid so far, one character at a time.
    """

    def __init__(self, detokenizer: Detokenizer) -> None:
        super().__init__(detokenizer)
        self._window = _Window(detokenizer)
        self._num_given = 0
        """Characters of the window's text that were given although its last one is incomplete."""
        self._decode_at = 0
        """Length of the window below which it is not decoded: it doubles while characters stay
        incomplete, so that even endless invalid text costs linear time."""
        self._run: list[int] = []
        """Tokens of the run of bytes that waits."""
        self._run_ahead: _RunAhead | None = None

    def _settled(self, token_id: int) -> str:
        # Where other tokens make parts of characters too, what waits may go on behind the run.
        if (
            not self._run
            or self._detokenizer.fallback_byte(token_id) is not None
            or self._detokenizer.splits_characters
        ):
            return ""
        self._run, self._run_ahead = [], None
        piece = self._window.new_text()
        self._window.advance()
        return piece

    def _certain(self, token_id: int) -> str:
        self._window.token_ids.append(token_id)
        if self._detokenizer.fallback_byte(token_id) is not None:
            self._run.append(token_id)
            return ""
        self._run, self._run_ahead = [], None
        if len(self._window.token_ids) < self._decode_at:
            return ""
        text = self._window.new_text()
        if self._detokenizer.splits_characters and text.endswith(REPLACEMENT):
            certain = text.rstrip(REPLACEMENT)
            piece, self._num_given = certain[self._num_given :], len(certain)
            num_tokens = len(self._window.token_ids)
            self._decode_at = 2 * num_tokens if num_tokens > 16 else 0
            return piece
        piece = text[self._num_given :]
        self._num_given = self._decode_at = 0
        self._window.advance()
        return piece

    def look_ahead(self) -> str:
        if not self._run:
            return ""
        if self._run_ahead is None:
            self._run_ahead = _RunAhead(self._detokenizer, self._window.without(len(self._run)))
        return self._run_ahead.read(self._run)


class _Window:
    """The tokens of the last piece, whose text has been given, and those that came since."""

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._detokenizer = detokenizer
        self.token_ids: list[int] = []
        self._num_context = 0
        self._context = ""

    def new_text(self) -> str:
        """Text of the tokens after the context."""
        return self._detokenizer.decode_part(self.token_ids)[len(self._context) :]

    def advance(self) -> None:
        """The new tokens become the context."""
        self.token_ids = self.token_ids[self._num_context :]
        self._num_context = len(self.token_ids)
        self._context = self._detokenizer.decode_part(self.token_ids)

    def without(self, num_tokens: int) -> "_Window":
        """A window of its own, less the last `num_tokens`, which are no context."""
        window = _Window(self._detokenizer)
        window.token_ids = self.token_ids[:-num_tokens]
        window._num_context, window._context = self._num_context, self._context
        return window


class _RunAhead:
    """Text of a run of byte tokens while it is valid: each character as its last byte comes."""

    def __init__(self, detokenizer: Detokenizer, before: _Window) -> None:
        self._detokenizer = detokenizer
        self._window = before
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._num_read = 0
        self._is_valid = True

    def read(self, run: Sequence[int]) -> str:
        """Text that the tokens of the run that were not read yet complete."""
        pieces = []
        while self._is_valid and self._num_read < len(run):
            token_id = run[self._num_read]
            self._num_read += 1
            byte = self._detokenizer.fallback_byte(token_id)
            assert byte is not None
            self._window.token_ids.append(token_id)
            try:
                is_complete = bool(self._decoder.decode(bytes([byte])))
            except UnicodeDecodeError:
                self._is_valid = False
                break
            if is_complete:
                pieces.append(self._window.new_text())
                self._window.advance()
        return "".join(pieces)


def _goes_on(character: bytes, byte: bytes) -> bool:
    """Whether an incomplete character may go on with this byte."""
    try:
        codecs.utf_8_decode(character + byte, "strict", False)
    except UnicodeDecodeError:
        return False
    return True
