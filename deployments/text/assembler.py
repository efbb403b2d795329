"""Tokens to an answer's text while they arrive.

    token ids --TextStream--> text --StopMatcher--> text that no stop string can still swallow

`TextAssembler` runs both over the engine's deltas, one token at a time, so that a stop string ends
the text at the same token whatever the size of the deltas.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from deployments.text.detokenizer import Detokenizer
from deployments.text.stop_strings import StopMatcher, StopRule
from engine.request import FinishReason, TokenDelta, TokenLogprobs


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token of a text."""

    offset: int
    """Characters before it; for a later part of a character, those before that one."""
    is_drafted: bool
    """Whether it was a draft's, which the target kept; else the target's own."""
    num_rejected: int
    """Draft tokens that the target rejected here, this token's draft and what followed it."""
    logprobs: TokenLogprobs | None = None
    """If they were asked for."""


class TextAssembler:
    """Text, tokens and counts of one sequence, from the engine's deltas."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        stop: StopRule = StopRule(),  # noqa: B008  # immutable
        *,
        keeps_tokens: bool = False,
        is_complete: Callable[[str], bool] | None = None,
    ) -> None:
        """`keeps_tokens`: `take_tokens` gives them, with the log-probabilities that deltas carry.

        `is_complete` is told all text that becomes certain, and says whether the answer ends there.
        """
        self._stream = detokenizer.stream()
        self._min_tokens = stop.min_tokens
        self._matcher = StopMatcher(stop)
        self._matcher.bar()
        self._is_complete = is_complete
        self._keeps_tokens = keeps_tokens
        self._ahead: list[str] = []
        """Text that waits in the stream, in which stop strings are looked for all the same."""
        self._untaken: list[str] = []
        self._untaken_tokens: deque[ShownToken] = deque()
        self._num_pushed = 0
        self._num_shown = 0
        self._is_cut = False
        self.finish_reason: FinishReason | None = None
        self.num_tokens = 0
        """Up to and including an ending EOS token, or the token that completed a stop string."""
        self.num_accepted = 0
        self.num_rejected = 0
        """Draft tokens that are, or are not, among those tokens."""
        self.accepted_in_steps: Counter[int] = Counter()
        """Steps by accepted draft tokens. One that drafted nothing says nothing of drafts, and is
        left out."""

    def push(self, delta: TokenDelta) -> None:
        """Take one delta. Nothing after the end is looked at."""
        if self.finish_reason is not None:
            return
        num_text_tokens = len(delta.token_ids) - delta.ends_with_stop_token
        num_taken = 0
        for num_taken in range(1, len(delta.token_ids) + 1):
            if num_taken <= num_text_tokens:
                self._push_token(delta, num_taken - 1)
            if self._is_cut:
                break
        self.num_tokens += num_taken
        num_accepted = min(delta.num_accepted, num_taken)
        self.num_accepted += num_accepted
        if delta.num_drafted:
            self.accepted_in_steps[num_accepted] += 1
        self.num_rejected += delta.num_drafted - num_accepted
        if delta.finish_reason is not None and not self._is_cut:
            self._show(self._matcher.push(self._stream.flush()))
            self._show(self._matcher.flush())
        # A stop string that completes on the last token allowed is a stop, not a lack of room.
        self.finish_reason = FinishReason.STOP if self._is_cut else delta.finish_reason

    def take(self) -> str:
        """Text that has become certain since the last call."""
        text = "".join(self._untaken)
        self._untaken.clear()
        return text

    def take_tokens(self) -> list[ShownToken]:
        """Tokens of which a part was shown since the last call; at the end, all that are left but
        those behind a cut."""
        taken = []
        takes_all = self.finish_reason is not None and not self._is_cut
        while self._untaken_tokens and (
            takes_all or self._untaken_tokens[0].offset < self._num_shown
        ):
            taken.append(self._untaken_tokens.popleft())
        return taken

    def _push_token(self, delta: TokenDelta, index: int) -> None:
        token_id = delta.token_ids[index]
        if self._num_pushed == self._min_tokens:
            self._matcher.unbar()
        self._num_pushed += 1
        self._read(self._stream.settle(token_id))
        if self._is_cut:
            return
        if self._keeps_tokens:
            is_last = index == len(delta.token_ids) - 1
            self._untaken_tokens.append(
                ShownToken(
                    self._matcher.num_read,
                    is_drafted=index < delta.num_accepted,
                    num_rejected=delta.num_drafted - delta.num_accepted if is_last else 0,
                    logprobs=delta.logprobs[index] if delta.logprobs else None,
                )
            )
        self._read(self._stream.push(token_id))
        if self._is_cut or (self._matcher.is_idle and not self._keeps_tokens):
            return
        ahead = self._stream.look_ahead()
        if ahead:
            self._ahead.append(ahead)
            if self._matcher.matches_ahead(ahead):
                self._show(self._matcher.push("".join(self._ahead)))

    def _read(self, certain: str) -> None:
        if certain:
            self._ahead.clear()
            self._show(self._matcher.push(certain))

    def _show(self, text: str) -> None:
        if text:
            self._untaken.append(text)
            self._num_shown += len(text)
            if self._is_complete is not None and self._is_complete(text):
                self._is_cut = True
        if self._matcher.matched:
            self._is_cut = True
