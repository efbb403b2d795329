"""What a distillation is told, who watches it, and what comes of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from engine.config import DtypeName
from engine.distill.shares import Share
from engine.distill.training import Step, TrainingSettings
from engine.errors import ConfigError

ASKING_SHARE = 0.5
"""Of the minutes: for asking the target; training has the rest."""
_HELD_OUT_EVERY = 20


@dataclass(frozen=True, slots=True)
class DistillationConfig:
    target: Path
    """Folder in Hugging Face format."""
    out: Path
    """Folder to make."""
    prompts: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()
    own_prompts: int = 0
    """How many the target writes itself."""
    layers: int | tuple[int, ...] = 2
    """Which of the target's, or how many of them, spread."""
    vocabulary: int = 8192
    """Tokens that the draft may propose: those that the target says most."""
    minutes: float | None = None
    """For all of it, about; None: until all prompts are answered and learned from."""
    max_answer: int = 256
    """Tokens."""
    width: int = 64
    """Prompts answered at once."""
    kv_cache_bytes: int = 2 * 2**30
    dtype: DtypeName = "bfloat16"
    """Of the target while it answers."""
    device: str = "cpu"
    compile_folder: Path | None = None
    trust_remote_code: bool = False
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        if not self.prompts and not self.texts and self.own_prompts == 0:
            raise ConfigError(
                "--prompts or --text must name at least one file, or --own-prompts be above 0"
            )
        for name, value, least in (
            ("--layers", self.layers if isinstance(self.layers, int) else len(self.layers), 1),
            ("--own-prompts", self.own_prompts, 0),
            ("--vocabulary", self.vocabulary, 2),
            ("--max-answer", self.max_answer, 1),
            ("--width", self.width, 1),
            ("--epochs", self.training.epochs, 1),
        ):
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        if self.minutes is not None and not self.minutes > 0:
            raise ConfigError(f"--minutes must be above 0, got {self.minutes}")


@dataclass(frozen=True, slots=True)
class Distilled:
    """A draft that is done."""

    folder: Path
    acceptance: Share
    """Of the target's likeliest tokens at held-out places, those that were the draft's likeliest,
    the text before being the target's."""
    num_labels: int
    """Places that were learned from."""


class Watcher(Protocol):
    """Sees how a distillation goes, and may end it."""

    def stage(self, text: str) -> None:
        """Something begins that can't be told the progress of."""

    def asking(self, done: int, total: int, num_labels: int) -> None:
        """So many sources of so many are done, and so many places are known."""

    def training(self, step: Step, acceptance: Share) -> None:
        """A step of the training, and the last held-out acceptance."""

    @property
    def stopped(self) -> bool:
        """Whether to end now, and go on another time."""


class Interrupted(Exception):
    """The watcher wanted an end; the same call goes on."""


def is_held_out(source: int, total: int) -> bool:
    """Whether a prompt is never learned from: every so many, spread over all files; the last one
    where there are too few."""
    if total < _HELD_OUT_EVERY:
        return source == total - 1
    return source % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
