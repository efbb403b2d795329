"""The list of a cached folder's files with sizes and checksums: how damage is noticed."""

import hashlib
import json
from pathlib import Path

from engine.files import sync

MANIFEST = "paceline.json"

FORMAT = 1
"""Raised when a folder made by an older Paceline has to be made anew."""


def write_manifest(folder: Path, source: str, source_sha256: str) -> None:
    """List the files of `folder` in its manifest, and bring all of them safely to the disk."""
    files = {}
    for path in files_of(folder):
        sync(path)
        name = path.relative_to(folder).as_posix()
        files[name] = {"size_bytes": path.stat().st_size, "sha256": sha256_of(path)}
    manifest = {
        "format": FORMAT,
        "source": source,
        "source_sha256": source_sha256,
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    sync(folder / MANIFEST)
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        sync(path)


def files_of(folder: Path) -> list[Path]:
    """All files, those of its folders included, in order of their names."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def find_damage(folder: Path, source_sha256: str, *, checksums: bool = False) -> str | None:
    """What is wrong with `folder`, in a few words; None when it is whole.

    Compares sizes, which takes no time; with `checksums` the contents too.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        made_by, made_from = manifest["format"], manifest["source_sha256"]
        files = {
            str(name): (int(entry["size_bytes"]), str(entry["sha256"]))
            for name, entry in manifest["files"].items()
        }
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is unreadable"
    if made_by != FORMAT or made_from != source_sha256:
        return "it was made by another version"
    for name, (size_bytes, sha256) in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size_bytes:
            return f"{name} has {path.stat().st_size} bytes instead of {size_bytes}"
        if checksums and sha256_of(path) != sha256:
            return f"{name} has another checksum"
    return None


def sha256_of(path: Path) -> str:
    """Checksum of the file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
