"""Stop strings: text that arrives in pieces is cut where one of them stands."""

import copy
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopRule:
    """Which strings end a text, and how."""

    strings: tuple[str, ...] = ()
    min_tokens: int = 0
    """A stop string must be completed by a token behind so many."""
    is_shown: bool = False
    """Whether the string that ended the text stays in it."""


class StopMatcher:
    """Cuts text at the first stop string. Holds back text that may be the start of one.

    Each stop string is matched by its Knuth-Morris-Pratt automaton: the state is how much of the
    stop string the text so far ends with, so a character costs the same however long it is, and
    so does a matcher.
    """

    def __init__(self, rule: StopRule) -> None:
        self._automata = [_Automaton(text) for text in rule.strings]
        self._is_shown = rule.is_shown
        self._ahead: list[_Automaton] | None = None
        """The automata, advanced by what `matches_ahead` was given since the last push."""
        self._held = ""
        self._num_pushed = 0
        self._num_ahead = 0
        self._min_end = 0
        """Characters from the beginning behind which a stop string must end."""
        self.matched = False

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look for."""
        return not self._automata

    @property
    def num_read(self) -> int:
        """Characters that were pushed, or looked at ahead."""
        return self._num_pushed + self._num_ahead

    def push(self, text: str) -> str:
        """Text that can be shown now. After a match `matched` is set and nothing more comes."""
        if self.matched:
            return ""
        self._ahead, self._num_ahead = None, 0
        matches = []
        for automaton in self._automata:
            end = automaton.advance(text, self._min_end - self._num_pushed)
            if end is not None:
                end += len(self._held)
                matches.append((end - automaton.length, end))
        self._held += text
        self._num_pushed += len(text)
        if matches:
            self.matched = True
            start, end = min(matches)
            shown, self._held = self._held[: end if self._is_shown else start], ""
            return shown
        num_kept = max((automaton.state for automaton in self._automata), default=0)
        cut = len(self._held) - num_kept
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def matches_ahead(self, text: str) -> bool:
        """Whether pushing `text`, after the texts asked about since the last push, would match."""
        if self._ahead is None:
            self._ahead = [copy.copy(automaton) for automaton in self._automata]
        num_barred = self._min_end - self.num_read
        self._num_ahead += len(text)
        ends = [automaton.advance(text, num_barred) for automaton in self._ahead]  # all of them
        return any(end is not None for end in ends)

    def flush(self) -> str:
        """The text held back, as no more comes."""
        shown, self._held = self._held, ""
        return shown

    def bar(self) -> None:
        """Let nothing match before `unbar`."""
        self._min_end = sys.maxsize

    def unbar(self) -> None:
        """Let match what ends behind the text read so far."""
        self._min_end = self.num_read


class _Automaton:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._fallback: list[int] = []
        """Entry i: length of the longest proper prefix of pattern[:i + 1] that also ends it. Made
        as far as the state ever was: no text may come near the end of a very long pattern."""
        self.state = 0

    @property
    def length(self) -> int:
        return len(self._pattern)

    def advance(self, text: str, num_barred: int) -> int | None:
        """Offset in `text` just after the first match that ends behind `num_barred` characters."""
        for offset, character in enumerate(text, start=1):
            self.state = self._next(self.state, character)
            if self.state > len(self._fallback):
                self._fallback.append(self._next_fallback())
            if self.state == len(self._pattern):
                if offset > num_barred:
                    return offset
                self.state = self._fallback[-1]
        return None

    def _next_fallback(self) -> int:
        if not self._fallback:
            return 0
        return self._next(self._fallback[-1], self._pattern[len(self._fallback)])

    def _next(self, state: int, character: str) -> int:
        while state and self._pattern[state] != character:
            state = self._fallback[state - 1]
        return state + (self._pattern[state] == character)
