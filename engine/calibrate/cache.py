"""Calibrations on disk, one file for each kind of machine and models.

A file that is anything but what was stored under its key counts as none: what it holds is measured
again. So neither damage nor a full disk keeps an engine from starting.
"""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path

from engine.calibrate.kind import FORMAT
from engine.files import write_json
from policy.cost import Calibration

logger = logging.getLogger(__name__)


def load(folder: Path, key: str) -> Calibration | None:
    """What was stored under `key`; None, and a warning unless there is no such file, if nothing."""
    path = _path(folder, key)
    try:
        told = json.loads(path.read_bytes())
        if not isinstance(told, dict):
            raise ValueError("it holds no object")
        for name, wanted in (("format", FORMAT), ("key", key)):
            if told.get(name) != wanted:
                raise ValueError(f"{name} must be {wanted!r}, got {str(told.get(name))[:80]!r}")
        return Calibration.from_json(told.get("calibration"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("%s is not used and will be measured again: %s", path, error)
        return None


def measured_at_unix_s(folder: Path, key: str) -> float | None:
    """When what is stored under `key` was measured; None where that can't be read."""
    try:
        return float(json.loads(_path(folder, key).read_bytes())["measured_at_unix_s"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def store(
    folder: Path,
    key: str,
    calibration: Calibration,
    *,
    description: Mapping[str, str | int] | None = None,
) -> bool:
    """Keep a calibration under `key`, the `description` beside it for people; False, and a warning,
    where it can't be written."""
    path = _path(folder, key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(
            path,
            {
                "format": FORMAT,
                "key": key,
                "about": dict(description or {}),
                "measured_at_unix_s": round(time.time()),
                "calibration": calibration.as_json(),
            },
            indent=1,
        )
    except OSError as error:
        logger.warning("%s can't be written; the next start measures again: %s", path, error)
        return False
    return True


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"
