"""Tokens to text while they arrive: detokenising, stop strings, and the chat template.

    token ids --TextStream--> text --StopMatcher--> text that no stop string can still swallow

`TextAssembler` runs both over the engine's deltas, one token at a time, so that a stop string ends
the text at the same token whatever the size of the deltas.
"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from engine.errors import RequestError
from engine.request import FinishReason, TokenDelta

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

REPLACEMENT = "\ufffd"


class Detokenizer:
    """What all text streams of one tokenizer share. Immutable."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast") -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._special_ids = frozenset(
            token_id
            for token_id, token in self._backend.get_added_tokens_decoder().items()
            if token.special
        )
        self._byte_ids = self._byte_fallback_ids()

    def stream(self) -> "TextStream":
        """A stream for one sequence."""
        return TextStream(self)

    def is_silent(self, token_id: int) -> bool:
        """Whether the token never makes text: a special one, or one that no text stands for."""
        return token_id in self._special_ids or self._backend.id_to_token(token_id) is None

    def is_byte(self, token_id: int) -> bool:
        """Whether the token is one raw byte, under a decoder that joins runs of them into text."""
        return token_id in self._byte_ids

    def decode_part(self, token_ids: Sequence[int]) -> str:
        """Text of neighbouring tokens, which may lack the context of those before."""
        return self._backend.decode(token_ids, skip_special_tokens=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a whole sequence, special tokens left out."""
        text = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def _byte_fallback_ids(self) -> frozenset[int]:
        decoder = self._backend.decoder
        if decoder is None or b'"ByteFallback"' not in decoder.__getstate__():
            return frozenset()
        ids = (self._backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(token_id for token_id in ids if token_id is not None)


class TextStream:
    """Text of a growing sequence. All pieces and the last `flush` together are `decode(ids)`.

    Only a window is decoded anew: the tokens of the last piece, for context, and those that came
    since. Two kinds of tokens wait there for the ones after them: an incomplete character, which
    decodes to a trailing U+FFFD, and a run of byte-fallback tokens, which such decoders turn into
    text only as a whole: one byte too many, and every byte of the run becomes a U+FFFD. (That is
    why `tokenizers.decoders.DecodeStream`, which shows a run's text before its end, is not used.)
    """

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._detokenizer = detokenizer
        self._token_ids: list[int] = []
        self._pieces: list[str] = []
        self._window: list[int] = []
        self._num_context = 0
        """Tokens at the start of the window whose text, `_context`, has been given."""
        self._context = ""

    def push(self, token_id: int) -> str:
        """Text that is certain with this token; often its own, sometimes none yet."""
        if self._detokenizer.is_silent(token_id):
            return ""
        self._token_ids.append(token_id)
        self._window.append(token_id)
        if self._detokenizer.is_byte(token_id):
            return ""
        text = self._detokenizer.decode_part(self._window)
        if text.endswith(REPLACEMENT):
            return ""
        piece = text[len(self._context) :]
        self._window = self._window[self._num_context :]
        self._num_context = len(self._window)
        self._context = self._detokenizer.decode_part(self._window)
        self._pieces.append(piece)
        return piece

    def waiting(self) -> str:
        """Text of the tokens that wait, if the sequence ended here; no incomplete character."""
        if len(self._window) == self._num_context:
            return ""
        text = self._detokenizer.decode_part(self._window)
        return text[len(self._context) :].rstrip(REPLACEMENT)

    def flush(self) -> str:
        """Whatever was held back, as the sequence has ended."""
        given = "".join(self._pieces)
        whole = self._detokenizer.decode(self._token_ids)
        rest = whole[len(given) :] if whole.startswith(given) else ""
        self._pieces.append(rest)
        return rest


class StopMatcher:
    """Cuts text before the first stop string. Holds back text that may be the start of one.

    Each stop string is matched by its Knuth-Morris-Pratt automaton: the state is how much of the
    stop string the text so far ends with, so a character costs the same however long it is.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._automata = [_Automaton(text) for text in stop]
        self._held = ""
        self.matched = False

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look for."""
        return not self._automata

    def push(self, text: str) -> str:
        """Text that can be shown now. After a match `matched` is set and nothing more comes."""
        if self.matched:
            return ""
        self._held += text
        starts = []
        for automaton in self._automata:
            end = automaton.advance(text)
            if end is not None:
                starts.append(len(self._held) - len(text) + end - automaton.length)
        if starts:
            self.matched = True
            shown, self._held = self._held[: min(starts)], ""
            return shown
        num_kept = max((automaton.state for automaton in self._automata), default=0)
        cut = len(self._held) - num_kept
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def would_match(self, text: str) -> bool:
        """Whether `push(text)` would match."""
        return any(copy.copy(automaton).advance(text) is not None for automaton in self._automata)

    def flush(self) -> str:
        """The text held back, as no more comes."""
        shown, self._held = self._held, ""
        return shown


class _Automaton:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._fallback = [0] * len(pattern)
        """Entry i: length of the longest proper prefix of pattern[:i + 1] that also ends it."""
        self.state = 0
        for index in range(1, len(pattern)):
            self._fallback[index] = self.state = self._next(self.state, pattern[index])
        self.state = 0

    @property
    def length(self) -> int:
        return len(self._pattern)

    def advance(self, text: str) -> int | None:
        """Offset in `text` just after the first match, or None."""
        for offset, character in enumerate(text):
            self.state = self._next(self.state, character)
            if self.state == len(self._pattern):
                return offset + 1
        return None

    def _next(self, state: int, character: str) -> int:
        while state and self._pattern[state] != character:
            state = self._fallback[state - 1]
        return state + (self._pattern[state] == character)


class TextAssembler:
    """Text and counts of one request, from the engine's deltas."""

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = ()) -> None:
        self._stream = detokenizer.stream()
        self._matcher = StopMatcher(stop)
        self._untaken: list[str] = []
        self.finish_reason: FinishReason | None = None
        self.num_tokens = 0
        """Up to and including an ending EOS token, or the token that completed a stop string."""
        self.num_accepted = 0
        self.num_rejected = 0
        """Draft tokens that are, or are not, among those tokens."""

    def push(self, delta: TokenDelta) -> None:
        """Take one delta. Nothing after the end is looked at."""
        if self.finish_reason is not None:
            return
        # An EOS or stop token ends the text without being part of it.
        num_text_tokens = len(delta.token_ids) - (delta.finish_reason is FinishReason.STOP)
        num_taken = 0
        for num_taken, token_id in enumerate(delta.token_ids, start=1):
            if num_taken <= num_text_tokens:
                self._push_token(token_id)
            if self._matcher.matched:
                break
        self.num_tokens += num_taken
        num_accepted = min(delta.num_accepted, num_taken)
        self.num_accepted += num_accepted
        self.num_rejected += delta.num_drafted - num_accepted
        if delta.finish_reason is not None and not self._matcher.matched:
            self._show(self._matcher.push(self._stream.flush()))
            self._show(self._matcher.flush())
        # A stop string that completes on the last token allowed is a stop, not a lack of room.
        self.finish_reason = FinishReason.STOP if self._matcher.matched else delta.finish_reason

    def take(self) -> str:
        """Text that has become certain since the last call."""
        text = "".join(self._untaken)
        self._untaken.clear()
        return text

    def _push_token(self, token_id: int) -> None:
        self._show(self._matcher.push(self._stream.push(token_id)))
        if self._matcher.is_idle or self._matcher.matched:
            return
        waiting = self._stream.waiting()
        if waiting and self._matcher.would_match(waiting):
            self._show(self._matcher.push(waiting))

    def _show(self, text: str) -> None:
        if text:
            self._untaken.append(text)


def render_chat(tokenizer: "PreTrainedTokenizerFast", messages: Sequence[dict[str, str]]) -> str:
    """The conversation as the model's template writes it, ready for the assistant's answer.

    Raises RequestError when the model has no template, or when its template refuses the messages.
    """
    if not tokenizer.chat_template:
        raise RequestError(
            "messages", "this model has no chat template; send a prompt to /v1/completions instead"
        )
    try:
        text: Any = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
    except (TemplateError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise RequestError(
            "messages", f"messages do not fit the model's chat template: {reason}"
        ) from error
    assert isinstance(text, str)
    return text
