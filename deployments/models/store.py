"""From what a person writes as a model to a folder on this machine."""

import os
import re
from pathlib import Path

from deployments.models.cache import ModelCache
from deployments.models.catalog import EMBEDDED
from deployments.models.hub import download
from engine.errors import ConfigError
from policy.quoting import SHOWN_PATH_CHARACTERS, shown

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def resolve_model(
    name_or_path: str, *, key: str = "model", cache: ModelCache | None = None
) -> Path:
    """The folder, in Hugging Face format, of an embedded model, a local folder or a hub name.

    An embedded model is only looked up, not made. A name `org/model` that is no folder here is
    downloaded from the hub. Raises ConfigError, in one line that starts with `key`.
    """
    cache = cache or ModelCache()
    embedded = EMBEDDED.get(name_or_path)
    if embedded is not None:
        damage = cache.find_damage(embedded)
        if damage is not None:
            raise ConfigError(
                f"{key}: {name_or_path!r} is not ready in {cache.folder(embedded)} ({damage}); "
                f"run: paceline models get {embedded.name}"
            )
        return cache.folder(embedded)
    folder = _folder(name_or_path, key)
    if folder is not None:
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"{key}: folder {shown(name_or_path, SHOWN_PATH_CHARACTERS)} holds no config.json"
            )
        return folder
    if _HUB_NAME.fullmatch(name_or_path) and not name_or_path.startswith("."):
        return download(name_or_path, key)
    if name_or_path.startswith((".", "/", "~")):
        raise ConfigError(f"{key}: there is no folder {shown(name_or_path, SHOWN_PATH_CHARACTERS)}")
    raise ConfigError(
        f"{key}: {shown(name_or_path, SHOWN_PATH_CHARACTERS)} is no embedded model "
        f"({', '.join(EMBEDDED)}), no folder, and no hub name of the form org/name"
    )


def find_folder(name_or_path: str) -> Path | None:
    """The folder that a path leads to, absolute and without dots; None when there is none."""
    try:
        return _folder(name_or_path, "model")
    except ConfigError:
        return None


def _folder(name_or_path: str, key: str) -> Path | None:
    """Raises ConfigError when the path leads to a file, or cannot be followed."""
    if not name_or_path:
        return None
    try:
        # Dots are taken out without following links: a link's name is the name its owner chose.
        path = Path(os.path.abspath(Path(name_or_path).expanduser()))
        if path.is_dir():
            # Asked now, so that a folder that may not be entered is found out here.
            (path / "config.json").exists()
            return path
        exists = path.exists()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "there is no such user"
        raise ConfigError(
            f"{key}: can't look into {shown(name_or_path, SHOWN_PATH_CHARACTERS)}: {reason}"
        ) from None
    if exists:
        raise ConfigError(
            f"{key}: {shown(name_or_path, SHOWN_PATH_CHARACTERS)} is a file; a model is a folder"
        )
    return None
