"""The progress bar that the benchmarks show."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Begin = Callable[[str], None]
"""Told what begins; what began before is done."""


@contextmanager
def measuring(console: Console, total: int) -> Iterator[Begin]:
    """A bar over `total` measurements. Ctrl-C leaves the block, and what was measured is kept."""
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.fields[now]:<32}"), *columns, console=console) as progress:
        task = progress.add_task("measuring", total=total, now="")
        begun = 0

        def begin(what: str) -> None:
            nonlocal begun
            progress.update(task, completed=begun, now=what)
            begun += 1

        try:
            yield begin
            progress.update(task, completed=begun)
        except KeyboardInterrupt:
            console.print("stopped; what was measured so far follows")
