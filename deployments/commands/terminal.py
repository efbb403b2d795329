"""How long work tells a person how far it is, and hears that it is to stop."""

import math
import signal
import time
from typing import TYPE_CHECKING

from deployments.stop_signals import StopSignals

if TYPE_CHECKING:
    from rich.progress import TaskID

INTERRUPTED = 130
"""Exit code of work that a person stopped."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminal:
    """Bars in a terminal, lines now and then in a log. Within it a signal is something to ask
    about; before, it ends the command as any."""

    def __init__(self, *, line_every_s: float, on_stop: str | None = None) -> None:
        """`on_stop`: said when a stop is first asked for."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[more]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._line_every_s = line_every_s
        self._told_s = -math.inf
        self._on_stop = on_stop
        # Said in `stopped`: a handler that writes may interrupt us in the middle of writing.
        self._signals = StopSignals(lambda _: None)

    def __enter__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self._signals.listen()
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def stopped(self) -> bool:
        if self._signals.requested and self._on_stop is not None:
            self.say(self._on_stop)
            self._on_stop = None
        return self._signals.requested

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)

    def stage(self, text: str) -> None:
        self.say(f"{text} ...")

    def progress(self, what: str, share: float, more: str) -> None:
        """`what` is done to a `share`."""
        if self._console.is_terminal:
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=1.0, more="")
            self._bar.update(self._tasks[what], completed=share, more=more)
        elif time.monotonic() - self._told_s >= self._line_every_s:
            self._told_s = time.monotonic()
            self.say(f"{what}: {share:.0%}, {more}")
