"""Tokens to an answer's text while they arrive: stop strings, and the chat template.

    token ids --TextStream--> text --StopMatcher--> text that no stop string can still swallow

`TextAssembler` runs both over the engine's deltas, one token at a time, so that a stop string ends
the text at the same token whatever the size of the deltas.
"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from deployments.detokenizer import Detokenizer
from engine.errors import RequestError
from engine.request import FinishReason, TokenDelta

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class StopMatcher:
    """Cuts text before the first stop string. Holds back text that may be the start of one.

    Each stop string is matched by its Knuth-Morris-Pratt automaton: the state is how much of the
    stop string the text so far ends with, so a character costs the same however long it is.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._automata = [_Automaton(text) for text in stop]
        self._ahead: list[_Automaton] | None = None
        """The automata, advanced by what `matches_ahead` was given since the last push."""
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
        self._ahead = None
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

    def matches_ahead(self, text: str) -> bool:
        """Whether pushing `text`, after the texts asked about since the last push, would match."""
        if self._ahead is None:
            self._ahead = [copy.copy(automaton) for automaton in self._automata]
        ends = [automaton.advance(text) for automaton in self._ahead]  # each of them, up to here
        return any(end is not None for end in ends)

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
        self._ahead: list[str] = []
        """Text that waits in the stream, in which stop strings are looked for all the same."""
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
        certain = self._stream.push(token_id)
        if certain:
            self._ahead.clear()
            self._show(self._matcher.push(certain))
        if self._matcher.is_idle or self._matcher.matched:
            return
        ahead = self._stream.look_ahead()
        if ahead:
            self._ahead.append(ahead)
            if self._matcher.matches_ahead(ahead):
                self._show(self._matcher.push("".join(self._ahead)))

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
