"""A draft's folder: written whole or not at all, in Hugging Face format."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel

from engine.errors import ConfigError
from engine.files import sync
from engine.vocabulary import FILE, vocabulary_text

ABOUT = "distillation.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "added_tokens.json",
)
"""Those that a folder may have."""


def require_new(out: Path) -> None:
    """Raise ConfigError when `out` exists, or can't be made where it is wanted."""
    if out.exists() or out.is_symlink():
        raise ConfigError(f"--out {out}: exists already; name a new folder or remove it")
    parent = out.absolute().parent
    if not parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {out}: {parent} can't be written to")


def write_draft(
    out: Path,
    draft: PreTrainedModel,
    vocabulary: list[int] | None,
    target: Path,
    about: dict[str, Any],
    plot: Path | None,
) -> None:
    """`draft` with its whole head. Raises OSError when the disk is full; nothing is left then."""
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    try:
        ready = scratch / "ready"
        try:
            draft.save_pretrained(ready)
        except SafetensorError as error:  # a full disk, for one
            raise OSError(str(error)) from error
        for name in TOKENIZER_FILES:
            if (target / name).is_file():
                shutil.copyfile(target / name, ready / name)
        if vocabulary is not None:
            (ready / FILE).write_text(vocabulary_text(vocabulary))
        (ready / ABOUT).write_text(json.dumps(about, indent=1) + "\n")
        if plot is not None:
            shutil.copyfile(plot, ready / plot.name)
        for path in [*ready.iterdir(), ready]:
            sync(path)
        ready.rename(out)
        sync(out.absolute().parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
