"""Which commit of Paceline runs."""

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def commit(root: Path = _ROOT) -> str | None:
    """Of the repository whose top folder is `root`, "-dirty" behind it where something was changed
    since. None: Paceline was not started from its repository (where it lies in an environment
    within somebody's repository, that one's commit says nothing of it), or there is no git."""
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None
    return _git(root, "describe", "--always", "--dirty", "--abbrev=12")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None: nothing, or there is no git."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() or None
