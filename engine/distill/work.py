"""The folder of a distillation under way: what it is one of, and whose it is."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from engine.errors import ConfigError
from engine.files import write_json


@contextmanager
def only_process(work: Path) -> Iterator[None]:
    """Raises ConfigError while another process is within."""
    work.mkdir(exist_ok=True)
    try:
        with FileLock(work / ".lock", timeout=0):
            yield
    except Timeout:
        raise ConfigError(f"--out: another process is at work in {work}") from None


def require_same(work: Path, plan: dict[str, Any]) -> None:
    """Note `plan`, or raise ConfigError when another one is under way in the folder."""
    path = work / "plan.json"
    try:
        before = json.loads(path.read_text())
    except FileNotFoundError:
        write_json(path, plan)
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} can't be read ({error}); remove {work}") from None
    for name, value in plan.items():
        if before.get(name) != value:
            raise ConfigError(
                f"{work} holds another distillation, whose {name} was {before.get(name)!r} and "
                f"not {value!r}; remove it, or name another --out"
            )


class Spent:
    """Seconds, kept in a file over interruptions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.seconds = float(json.loads(path.read_text())["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        write_json(self._path, {"seconds": self.seconds})
