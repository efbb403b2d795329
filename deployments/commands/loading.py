"""What a person sees while the application comes up: a line that lives, or plain lines in a log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class LoadingProgress:
    """Shows the stage and the seconds since it was made. Writes to standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._started_s = time.monotonic()
        self._stage = ""
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            # Standard output is not ours to wrap: while Ray starts, it leads nowhere.
            redirect_stdout=False,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within, the line lives (in a terminal)."""
        with self._bar:
            yield

    def stage(self, stage: str) -> None:
        """Show what is being done now; the same stage again changes nothing."""
        if stage == self._stage:
            return
        self._stage = stage
        self._bar.update(self._task, description=stage)
        if not self._console.is_terminal:
            self.say(f"[{self.elapsed_s:4.0f} s] {stage}")

    def say(self, text: str) -> None:
        """Print lines that stay."""
        self._console.print(text, markup=False)
