"""Prompt lookup: what followed the last few tokens when they stood earlier in the same text."""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

from engine.plan import NO_DRAFT, Draft, SeqSlice


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier occurrence of a text's last tokens."""

    length: int
    """How many of them."""
    token_ids: tuple[int, ...]
    """What followed, as far as a draft was asked for."""
    foreseen: tuple[int, ...] = ()
    """What followed that."""

    @property
    def draft(self) -> Draft:
        return Draft(self.token_ids, looked_up=True, foreseen=self.foreseen)


class NgramDrafter:
    """Drafts the continuation of the latest earlier occurrence of the longest matching suffix.

    Source: Saxena 2023, "prompt lookup decoding". Suffixes of `max_ngram` down to `min_ngram`
    tokens are tried in turn. A continuation that reaches the end of the text goes on with itself:
    a text that repeats is drafted at full length. Each text has an index, extended by its new
    tokens alone and kept while it is drafted for; losing one costs time, nothing else.
    """

    def __init__(self, *, max_ngram: int, min_ngram: int, foresight: int = 0) -> None:
        """`foresight`: tokens that are told of a continuation, those of the draft included; 0 for
        no more than these."""
        self._max_ngram = max_ngram
        self._min_ngram = min_ngram
        self._foresight = foresight
        self._indexes: dict[str, _Index] = {}

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        return [NO_DRAFT if match is None else match.draft for match in self.find(slices)]

    def find(self, slices: ReadOnly[SeqSlice]) -> list[Match | None]:
        """The match of each slice that a draft is asked for, if its text has one."""
        if not any(part.lookup_len for part in slices):
            return [None] * len(slices)
        before, self._indexes = self._indexes, {}
        return [self._match(part, before.get(part.request_id)) for part in slices]

    def _match(self, part: SeqSlice, index: "_Index | None") -> Match | None:
        if index is None or index.tokens is not part.tokens:  # an id may come again
            index = _Index(part.tokens, self._max_ngram, self._min_ngram)
        self._indexes[part.request_id] = index
        return index.match(part.lookup_len, self._foresight) if part.lookup_len else None


class _Index:
    """Where each run of tokens was last followed by another token, in a text that grows."""

    def __init__(self, tokens: ReadOnly[int], max_ngram: int, min_ngram: int) -> None:
        self.tokens = tokens
        self._lengths = range(max_ngram, min_ngram - 1, -1)
        self._follow: dict[tuple[int, ...], int] = {}
        """Position behind the run's latest occurrence."""
        self._num_read = 0

    def match(self, draft_len: int, foresight: int) -> Match | None:
        tokens, follow = self.tokens, self._follow
        for end in range(self._num_read, len(tokens)):
            for length in self._lengths:
                if length <= end:
                    follow[tuple(tokens[end - length : end])] = end
        self._num_read = len(tokens)
        for length in self._lengths:
            if length < len(tokens):
                found = follow.get(tuple(tokens[-length:]))
                if found is not None:
                    # What repeats has a period of so many tokens.
                    period = len(tokens) - found
                    more = max(draft_len, foresight)
                    follow_up = tuple([tokens[found + i % period] for i in range(more)])
                    return Match(length, follow_up[:draft_len], follow_up[draft_len:])
        return None
