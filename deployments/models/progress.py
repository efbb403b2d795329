"""Telling a person at the terminal what takes so long."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress as RichBar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn


class Progress(Protocol):
    """Receives what is being done."""

    def say(self, text: str) -> None:
        """Show one line and leave it there."""
        ...

    def stage(self, text: str) -> AbstractContextManager[None]:
        """Show that `text` is under way until the context ends."""
        ...


class Silent:
    """Says nothing; for callers that have no terminal, and for tests."""

    def say(self, text: str) -> None:
        return None

    @contextmanager
    def stage(self, text: str) -> Iterator[None]:
        yield


class TerminalProgress:
    """Lines, and a spinner with the time elapsed, on stderr; only lines if it is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        # The stream of now: a stage may put another one into sys.stderr's place.
        self._console = console or Console(file=sys.stderr, highlight=False)

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)

    @contextmanager
    def stage(self, text: str) -> Iterator[None]:
        if not self._console.is_terminal:
            self.say(f"{text} ...")
            yield
            return
        columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"))
        with RichBar(*columns, TimeElapsedColumn(), console=self._console) as bar:
            task = bar.add_task(text, total=1)
            yield
            bar.update(task, completed=1)
