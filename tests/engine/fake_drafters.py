"""Drafters whose guesses are known beforehand."""

from collections.abc import Mapping
from collections.abc import Sequence as ReadOnly

from engine.plan import Draft, SeqSlice


class WrongAtSecond:
    """Proposes each request's right answer, but for a wrong token at draft position 2."""

    def __init__(self, right: Mapping[str, ReadOnly[int]], vocab_size: int) -> None:
        self._right = right
        self._vocab_size = vocab_size

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        return [self._draft(part) for part in slices]

    def _draft(self, part: SeqSlice) -> Draft:
        done = len(part.tokens) - part.num_prompt
        tokens = list(self._right[part.request_id][done : done + part.draft_len])
        if len(tokens) > 1:
            tokens[1] = (tokens[1] + 1) % self._vocab_size
        return Draft(tuple(tokens))


class Nonsense:
    """Tokens that have nothing to do with the text, and at times none."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        return [
            Draft(
                tuple((7 * i + len(part.tokens)) % self._vocab_size for i in range(part.draft_len))
            )
            if len(part.tokens) % 3
            else Draft()
            for part in slices
        ]
