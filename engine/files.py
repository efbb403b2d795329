"""Files that appear whole under their name, or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replacing(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file to be written within, which then takes `path`'s place; after an error nothing is
    changed. `mode`: who may read it, before anything is in it. Raises OSError when the disk is
    full."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            if mode is not None:
                partial.chmod(mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Any, *, indent: int | None = None) -> None:
    """Raises OSError when the disk is full."""
    with replacing(path) as file:
        file.write(json.dumps(content, indent=indent).encode() + b"\n")


def write_text(path: Path, content: str, *, mode: int | None = None) -> None:
    """Raises OSError when the disk is full."""
    with replacing(path, mode=mode) as file:
        file.write(content.encode())


def sync(path: Path) -> None:
    """Bring a file, or a folder's list of names, to the disk: renames then survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
