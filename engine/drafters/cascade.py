"""Two drafters for one target: what the text itself offers where that holds, a model elsewhere."""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

from engine.drafters.base import Drafter
from engine.drafters.ngram import Match, NgramDrafter
from engine.plan import Draft, SeqSlice

_PRIOR_TOKENS = 8.0
"""What the prior weighs against measured tokens."""
_MODEL_PRIOR = 0.5
_MOST_TOKENS = 500.0
"""Older tokens count less, so that a change of the traffic is followed."""


class CascadeDrafter:
    """Takes a look-up's tokens where matches as long are kept as often as the model's, which cost
    a pass of the draft model each; asks the model elsewhere.

    How often is measured on the texts: what came is compared with what was drafted, and with what
    the look-up would have drafted, at the next call.
    """

    def __init__(self, lookup: NgramDrafter, model: Drafter, *, max_ngram: int) -> None:
        self._lookup = lookup
        self.model = model
        # A short run of tokens is followed by the same less often than a long one.
        self._matches = [_Rate(length / (length + 2)) for length in range(max_ngram + 1)]
        self._of_model = _Rate(_MODEL_PRIOR)
        self._guesses: dict[str, _Guess] = {}

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        if not any(part.draft_len or part.lookup_len for part in slices):
            return self.model.propose(slices)
        for part in slices:
            guess = self._guesses.get(part.request_id)
            if guess is not None and guess.text is part.tokens:
                self._learn(guess, part.tokens)
        matches = self._lookup.find(slices)
        taken = [match if self._holds(match) else None for match in matches]
        asked = [
            part if match is None else part._replace(draft_len=0)
            for part, match in zip(slices, taken, strict=True)
        ]
        drafts = [
            draft if match is None else match.draft
            for draft, match in zip(self.model.propose(asked), taken, strict=True)
        ]
        self._guesses = {
            part.request_id: _Guess(
                part.tokens, len(part.tokens), match, () if is_taken else draft.token_ids
            )
            for part, match, is_taken, draft in zip(slices, matches, taken, drafts, strict=True)
        }
        return drafts

    def _holds(self, match: Match | None) -> bool:
        return match is not None and self._matches[match.length].value >= self._of_model.value

    def _learn(self, guess: "_Guess", tokens: ReadOnly[int]) -> None:
        came = tokens[guess.end :]
        if guess.match is not None:
            self._matches[guess.match.length].note(guess.match.token_ids, came)
        self._of_model.note(guess.by_model, came)


@dataclass(frozen=True, slots=True)
class _Guess:
    text: ReadOnly[int]
    end: int
    """Tokens of the text then."""
    match: Match | None
    by_model: tuple[int, ...]


class _Rate:
    """The share of drafted tokens that were right, of those whose forerunners were."""

    def __init__(self, prior: float) -> None:
        self._right = prior * _PRIOR_TOKENS
        self._tried = _PRIOR_TOKENS

    @property
    def value(self) -> float:
        return self._right / self._tried

    def note(self, drafted: ReadOnly[int], came: ReadOnly[int]) -> None:
        for guess, token in zip(drafted, came, strict=False):
            self._tried += 1.0
            if guess != token:
                break
            self._right += 1.0
        if self._tried > _MOST_TOKENS:
            self._right *= 0.5
            self._tried *= 0.5
