"""What a run was made with, told so that another of the same name is known from it."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.config import DrafterConfig

_KINDS = (".json", ".jinja", ".safetensors")
_PART_BYTES = 2**20
_DIGITS = 16


def prompts_digest(texts: Sequence[str]) -> str:
    """Of what is asked, in hexadecimal."""
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()[:_DIGITS]


def weights_digest(folder: Path) -> str:
    """Of a model's folder, in hexadecimal: names and sizes of its weights, configuration and
    tokenizer, with the first and the last MiB of each, as reading all would take minutes. Raises
    OSError."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in _KINDS):
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            found.update(json.dumps([path.name, size]).encode())
            found.update(file.read(_PART_BYTES))
            file.seek(max(0, size - _PART_BYTES))
            found.update(file.read())
    return found.hexdigest()[:_DIGITS]


def drafter_settings(drafter: DrafterConfig) -> dict[str, Any]:
    """All but its kind, in JSON's types and without paths. Raises OSError."""
    model = drafter.model
    return {
        "model": None if model is None else model.name,
        "weights": None if model is None else weights_digest(model),
        "max_ngram": drafter.max_ngram,
        "min_ngram": drafter.min_ngram,
    }
