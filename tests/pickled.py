"""Weights as nobody should read them."""

from pathlib import Path
from typing import Any

import torch


def pickle_weights(folder: Path, trace: Path) -> None:
    """A model folder's weights become pickled ones; whoever reads them runs what they say: here,
    what makes a file."""
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    torch.save(_MakesFile(trace), folder / "pytorch_model.bin")


class _MakesFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self._path,)
