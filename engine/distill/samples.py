"""What a draft learns from: texts, and how likely the target held their tokens and others."""

import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ConfigError
from engine.files import replacing

NUM_TOP = 16
"""Likeliest tokens kept of each of the target's distributions."""
_SHARD = re.compile(r"samples-(\d{5})\.npz")


@dataclass(frozen=True, slots=True)
class Sample:
    """A text of the target."""

    source: int
    """Which prompt, or which piece of a running text, it came of."""
    tokens: NDArray[np.int32]
    """[n]"""
    start: int
    """First token that the target's distribution is known of."""
    top_ids: NDArray[np.int32]
    """[n - start, NUM_TOP]: the target's likeliest tokens at each place, likeliest first."""
    top_logprobs: NDArray[np.float16]
    """[n - start, NUM_TOP]"""

    @property
    def num_labels(self) -> int:
        return len(self.tokens) - self.start


class SampleStore:
    """Samples in a folder, in files that appear whole and never change."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError when the folder can't be made."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, samples: Sequence[Sample]) -> None:
        """All of them or, after a crash, none. Raises OSError when the disk is full."""
        if not samples:
            return
        shards = self._shards()
        number = int(_SHARD.fullmatch(shards[-1].name)[1]) + 1 if shards else 0  # type: ignore[index]
        arrays: dict[str, Any] = {
            "sources": np.array([s.source for s in samples], np.int64),
            "lengths": np.array([len(s.tokens) for s in samples], np.int64),
            "starts": np.array([s.start for s in samples], np.int64),
            "tokens": np.concatenate([s.tokens for s in samples]).astype(np.int32),
            "top_ids": np.concatenate([s.top_ids for s in samples]).astype(np.int32),
            "top_logprobs": np.concatenate([s.top_logprobs for s in samples]).astype(np.float16),
        }
        with replacing(self._folder / f"samples-{number:05}.npz") as file:
            np.savez(file, **arrays)

    def __iter__(self) -> Iterator[Sample]:
        """Raises ConfigError for a file that can't be read."""
        for shard in self._shards():
            try:
                with shard.open("rb") as stream, np.load(stream) as file:
                    yield from _samples({name: file[name] for name in file.files})
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                raise ConfigError(f"{shard} can't be read ({error}); remove it") from error

    def sources(self) -> set[int]:
        """Of all samples."""
        return {sample.source for sample in self}

    def _shards(self) -> list[Path]:
        return sorted(path for path in self._folder.iterdir() if _SHARD.fullmatch(path.name))


def _samples(arrays: dict[str, NDArray[np.generic]]) -> Iterable[Sample]:
    first_token = first_label = 0
    for source, length, start in zip(
        arrays["sources"].tolist(),
        arrays["lengths"].tolist(),
        arrays["starts"].tolist(),
        strict=True,
    ):
        end_token, end_label = first_token + length, first_label + length - start
        yield Sample(
            source,
            arrays["tokens"][first_token:end_token],  # type: ignore[arg-type]
            start,
            arrays["top_ids"][first_label:end_label],  # type: ignore[arg-type]
            arrays["top_logprobs"][first_label:end_label],  # type: ignore[arg-type]
        )
        first_token, first_label = end_token, end_label
