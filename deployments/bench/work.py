"""A run's folder: what was measured is on the disk at once, and a run that was stopped goes on.

NAME.plan.json says what is measured and where; a run with another plan is refused.
NAME.measured.jsonl has a line for each measurement; a line that was cut short is as if it had never
been begun. Runs of several benchmarks may share a folder.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.files import write_json

Record = dict[str, Any]
_NO_MATTER = frozenset({"environment.torch_threads"})
"""Of a plan: this process's threads before an engine sets its own."""


class Work:
    """Measurements by key, in the order in which they came."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        """Begin in `folder`, or go on there. Raises ConfigError: another run's, or no folder."""
        self._plan = folder / f"{plan['benchmark']}.plan.json"
        self._measured = folder / f"{plan['benchmark']}.measured.jsonl"
        self._records: dict[str, Record] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._go_on(json.loads(json.dumps(plan)))
        except OSError as error:
            raise ConfigError(f"--out: can't use {folder}: {error.strerror or error}") from None

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def __getitem__(self, key: str) -> Record:
        return self._records[key]

    def get(self, keys: Iterable[str]) -> list[Record]:
        """Those that are there."""
        return [self._records[key] for key in keys if key in self._records]

    def add(self, key: str, record: Record) -> None:
        """Keep a measurement. Raises OSError when the disk is full."""
        with self._measured.open("a") as file:
            file.write(json.dumps({"key": key, **record}) + "\n")
        self._records[key] = record

    def _go_on(self, plan: dict[str, Any]) -> None:
        path, measured = self._plan, self._measured
        if not path.exists():
            measured.unlink(missing_ok=True)
            write_json(path, plan, indent=1)
            return
        try:
            before = json.loads(path.read_text())
        except ValueError:
            raise ConfigError(f"--out: {path} is damaged; name another folder") from None
        difference = first_difference(before, plan, ignore=_NO_MATTER)
        if difference is not None:
            raise ConfigError(
                f"--out: {path.parent} holds another run, {difference}; name another folder, or "
                "remove it"
            )
        whole = ""
        for line in measured.read_text().splitlines() if measured.exists() else ():
            try:
                record = json.loads(line)
            except ValueError:
                break
            self._records[record.pop("key")] = record
            whole += line + "\n"
        if measured.exists():
            measured.write_text(whole)  # what comes next begins on a line of its own


def first_difference(
    before: object, now: object, where: str = "", *, ignore: Collection[str] = ()
) -> str | None:
    """Where two JSON documents differ first, in words; None where they do not. `ignore` has dotted
    names of what may differ."""
    if where in ignore:
        return None
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            path = f"{where}.{key}" if where else key
            found = first_difference(before.get(key), now.get(key), path, ignore=ignore)
            if found is not None:
                return found
        return None
    if before == now:
        return None
    return f"{where or 'all of it'} was {_short(before)} and is now {_short(now)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
