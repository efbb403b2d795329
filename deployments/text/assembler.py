"""Tokens to an answer's text while they arrive.

    token ids --TextStream--> text --StopMatcher--> text that no stop string can still swallow

`TextAssembler` runs both over the engine's deltas, one token at a time, so that a stop string ends
the text at the same token whatever the size of the deltas.
"""

from collections.abc import Sequence

from deployments.text.detokenizer import Detokenizer
from deployments.text.stop_strings import StopMatcher
from engine.request import FinishReason, TokenDelta


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
