"""The cache folder. What has its final name in it is complete; the rest is swept.

A model is built in `models/.building-NAME-…` and renamed to `models/NAME` when all of it is on
the disk. One process at a time builds a given model: it holds `models/.NAME.lock`, which the
kernel lets go when the process dies, so whatever is left in building folders then is rubbish.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from deployments.models.build import build_embedded
from deployments.models.catalog import EmbeddedModel
from deployments.models.manifest import files_of, find_damage, write_manifest
from deployments.models.progress import Progress, Silent
from engine.errors import ConfigError
from engine.files import sync
from policy.quoting import SHOWN_PATH_CHARACTERS, shown

Build = Callable[[EmbeddedModel, Path, Path, Progress], None]
"""(model, scratch folder, folder to fill, progress)."""


def default_home() -> Path:
    """The folder PACELINE_HOME names, or ~/.cache/paceline. Raises ConfigError without a home."""
    named = os.environ.get("PACELINE_HOME") or "~/.cache/paceline"
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(
            f"PACELINE_HOME must be a folder, got {shown(named, SHOWN_PATH_CHARACTERS)}, "
            "whose ~ names no home folder"
        ) from None


class ModelCache:
    """Embedded models as folders under `home`."""

    def __init__(self, home: Path | None = None, build: Build = build_embedded) -> None:
        self._models = (home or default_home()) / "models"
        self._build = build

    def folder(self, model: EmbeddedModel) -> Path:
        """Where `model` is, or would be."""
        return self._models / model.name

    def find_damage(self, model: EmbeddedModel, *, checksums: bool = False) -> str | None:
        """What is wrong with the cached copy, "not there" included; None when it is whole."""
        folder = self.folder(model)
        try:
            if not folder.is_dir():
                return "not there"
            return find_damage(folder, model.source_sha256, checksums=checksums)
        except OSError as error:
            return f"can't be read: {error.strerror}"

    def get(
        self, model: EmbeddedModel, *, checksums: bool = False, progress: Progress | None = None
    ) -> Path:
        """The model's folder, made now if it isn't whole. Raises ConfigError if that fails.

        `checksums` compares the contents of a cached copy as well as the sizes.
        """
        progress = progress or Silent()
        folder = self.folder(model)
        if self.find_damage(model, checksums=checksums) is None:
            return folder
        try:
            self._models.mkdir(parents=True, exist_ok=True)
            with self._only_process(model, progress):
                self._sweep(model)
                # Another process may have made it while this one waited.
                damage = self.find_damage(model, checksums=checksums)
                if damage is None:
                    return folder
                if folder.exists():
                    progress.say(f"{folder} is damaged ({damage}); making it again")
                self._make(model, folder, progress)
        except OSError as error:
            raise ConfigError(
                f"model {model.name}: cannot write to {self._models}: {error}"
            ) from error
        return folder

    def _make(self, model: EmbeddedModel, folder: Path, progress: Progress) -> None:
        scratch = Path(tempfile.mkdtemp(prefix=_building_prefix(model), dir=self._models))
        try:
            ready = scratch / "ready"
            ready.mkdir()
            self._build(model, scratch, ready, progress)
            for path in files_of(ready):
                path.chmod(0o644)
            write_manifest(ready, model.requirement, model.source_sha256)
            if folder.exists():
                folder.rename(scratch / "damaged")
            ready.rename(folder)
            sync(self._models)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _sweep(self, model: EmbeddedModel) -> None:
        """Remove what processes that died left behind."""
        for leftover in self._models.glob(f"{_building_prefix(model)}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    @contextmanager
    def _only_process(self, model: EmbeddedModel, progress: Progress) -> Iterator[None]:
        lock = FileLock(self._models / f".{model.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress.say(f"Another process is making {model.name}; waiting for it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _building_prefix(model: EmbeddedModel) -> str:
    return f".building-{model.name}-"
