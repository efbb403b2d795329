"""Prompt lookup: what followed the last few tokens when they stood earlier in the same text."""

from array import array
from collections.abc import Sequence as ReadOnly

from engine.plan import NO_DRAFT, Draft, SeqSlice


class NgramDrafter:
    """Drafts the continuation of the latest earlier occurrence of the longest matching suffix.

    Source: Saxena 2023, "prompt lookup decoding". Suffixes of `max_ngram` down to `min_ngram`
    tokens are tried in turn. Keeps no state, so nothing can fall behind or leak.
    """

    def __init__(self, *, max_ngram: int, min_ngram: int) -> None:
        self._max_ngram = max_ngram
        self._min_ngram = min_ngram

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        return [self._draft(part) if part.draft_len else NO_DRAFT for part in slices]

    def _draft(self, part: SeqSlice) -> Draft:
        tokens = array("i", part.tokens)
        text = tokens.tobytes()
        for length in range(min(self._max_ngram, len(tokens) - 1), self._min_ngram - 1, -1):
            match = _last_match(text, tokens[-length:].tobytes(), tokens.itemsize)
            if match is not None:
                follow = match + length
                return Draft(tuple(tokens[follow : follow + part.draft_len]))
        return NO_DRAFT


def _last_match(text: bytes, suffix: bytes, itemsize: int) -> int | None:
    """Token index of the last occurrence of `suffix` that ends before the text does."""
    end = len(text) - itemsize
    while (found := text.rfind(suffix, 0, end)) >= 0:
        if found % itemsize == 0:
            return found // itemsize
        end = found + len(suffix) - 1
    return None
