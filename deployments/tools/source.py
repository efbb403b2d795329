"""Text that arrives in pieces, read from its front by generators that wait where it runs out.

A reader is written as if the whole text were there, as a recursive-descent parser is, with
`yield from` wherever it may have to wait. So what it finds can't depend on how the text was cut,
and no character is looked at anew when the next piece comes.
"""

import re
from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""A computation that yields whenever it needs more text, and returns a Result."""

JSON_SPACES = " \t\r\n"
_SPACES = re.compile(f"[{JSON_SPACES}]+")
_ANY = re.compile(r".+", re.DOTALL)


class Source:
    """The text, and what was taken of it without having found its place yet.

    Whoever takes text says later what became of it: `forget` it, as it went out in some form, or
    `recall` it, as it was not what it seemed to be.
    """

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._has_ended = False
        self._taken: list[str] = []

    def push(self, text: str) -> None:
        # Readers leave no more than the beginning of a literal, so this copies little.
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """No more text comes."""
        self._has_ended = True

    def peek(self) -> Steps[str]:
        """The next character, or "" at the end."""
        while self._at == len(self._text):
            if self._has_ended:
                return ""
            yield
        return self._text[self._at]

    def take(self, num_characters: int = 1) -> str:
        """Characters that are known to be there."""
        taken = self._text[self._at : self._at + num_characters]
        self._at += num_characters
        self._taken.append(taken)
        return taken

    def take_run(self, pattern: re.Pattern[str]) -> str:
        """As much as matches and has arrived, maybe nothing."""
        found = pattern.match(self._text, self._at)
        return self.take(found.end() - self._at) if found else ""

    def take_arrived(self) -> str:
        """All that has arrived."""
        return self.take_run(_ANY)

    def take_spaces(self) -> Steps[str]:
        """White space up to something else, or to the end."""
        spaces = []
        while (yield from self.peek()) and (run := self.take_run(_SPACES)):
            spaces.append(run)
        return "".join(spaces)

    def literal(self, text: str) -> Steps[bool]:
        """Whether `text` comes next; it is taken only as a whole."""
        while True:
            arrived = self._text[self._at : self._at + len(text)]
            if arrived == text:
                self.take(len(text))
                return True
            if self._has_ended or not text.startswith(arrived):
                return False
            yield

    def forget(self) -> None:
        """What was taken has found its place."""
        self._taken.clear()

    def recall(self) -> str:
        """What was taken since `forget`, as it needs another place."""
        taken = "".join(self._taken)
        self._taken.clear()
        return taken
