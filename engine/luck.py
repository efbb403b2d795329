"""Which draft tokens are right in a simulation, and how few rounds a text can take with them."""

from random import Random
from typing import Protocol

from policy.table import MAX_DRAFT_LEN


class AcceptanceOf(Protocol):
    def __call__(self, request_id: str) -> tuple[float, ...]:
        """How likely a draft token is right whose forerunners were, by position in the draft; the
        last holds for those beyond."""


class Luck:
    """Which draft tokens are right: by the place in the text, whoever asks and when, so that
    policies are compared on the same luck."""

    def __init__(self, seed: int, acceptance: AcceptanceOf) -> None:
        self._seed = seed
        self._acceptance = acceptance
        self._rolls: dict[str, tuple[list[float], tuple[float, ...]]] = {}
        self._rounds: dict[str, tuple[int, list[int]]] = {}

    def num_right(self, request_id: str, place: int, length: int, max_tokens: int) -> int:
        """Of a draft of `length` tokens that begins at new token `place`, those before the first
        wrong one."""
        rolls, chances = self.of(request_id, max_tokens)
        right = 0
        while right < length and rolls[place + right] < chances[right]:
            right += 1
        return right

    def of(self, request_id: str, max_tokens: int) -> tuple[list[float], tuple[float, ...]]:
        """Rolls by new token, and the chances by position in a draft: right below the chance."""
        return self._rolls.get(request_id) or self._roll(request_id, max_tokens)

    def least_rounds(self, request_id: str, place: int, longest: int, max_tokens: int) -> int:
        """From new token `place` to the last, with drafts of `longest` tokens at most: as many as
        if each were as long as that. A draft that reaches further never costs a round."""
        if not longest:
            return max_tokens - place
        known = self._rounds.get(request_id)
        if known is None or known[0] != longest:
            known = self._rounds[request_id] = (
                longest,
                self._count_rounds(request_id, longest, max_tokens),
            )
        return known[1][place]

    def _count_rounds(self, request_id: str, longest: int, max_tokens: int) -> list[int]:
        """By place."""
        rolls, chances = self.of(request_id, max_tokens)
        likeliest = max(chances[:longest])
        rounds, right = [0] * (max_tokens + longest + 1), 0
        for place in range(max_tokens - 1, -1, -1):
            # Right in a row from here on, whatever the position in the draft.
            if rolls[place] >= likeliest:
                right = 0
            elif right < longest:
                right += 1
            rounds[place] = 1 + rounds[place + 1 + right]
        return rounds

    def forget(self, request_id: str) -> None:
        self._rolls.pop(request_id, None)
        self._rounds.pop(request_id, None)

    def _roll(self, request_id: str, max_tokens: int) -> tuple[list[float], tuple[float, ...]]:
        draw = Random(f"{self._seed} {request_id}").random
        chances = self._acceptance(request_id)
        chances += chances[-1:] * (MAX_DRAFT_LEN - len(chances))
        found = [draw() for _ in range(max_tokens + MAX_DRAFT_LEN)], chances
        self._rolls[request_id] = found
        return found
