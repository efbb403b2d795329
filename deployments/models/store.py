"""From what a person writes as a model to a folder on this machine."""

import re
from pathlib import Path

from deployments.models.cache import ModelCache
from deployments.models.catalog import EMBEDDED
from deployments.models.hub import download
from engine.errors import ConfigError

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
    path = Path(name_or_path).expanduser()
    if name_or_path and path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"{key}: folder {name_or_path!r} holds no config.json")
        return path.absolute()
    if name_or_path and path.exists():
        raise ConfigError(f"{key}: {name_or_path!r} is a file; a model is a folder")
    if _HUB_NAME.fullmatch(name_or_path) and not name_or_path.startswith("."):
        return download(name_or_path, key)
    if name_or_path.startswith((".", "/", "~")):
        raise ConfigError(f"{key}: there is no folder {name_or_path!r}")
    raise ConfigError(
        f"{key}: {name_or_path!r} is no embedded model ({', '.join(EMBEDDED)}), no folder, "
        "and no hub name of the form org/name"
    )
