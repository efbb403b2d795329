"""Stop strings: text that arrives in pieces is cut where one of them stands."""

import copy
from collections.abc import Sequence


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
