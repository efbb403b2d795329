"""A small target and prompts for it."""

import dataclasses
import json
from pathlib import Path

import pytest

from engine.distill.config import DistillationConfig
from engine.distill.shares import Share
from engine.distill.training import Step, TrainingSettings
from tests.tiny import save_tiny_llama


class Watching:
    """Notes what it sees, and wants an end after so many answers or steps."""

    def __init__(self, *, stop_asking_at: int | None = None, stop_training_at: int | None = None):
        self.stages: list[str] = []
        self.asked: list[tuple[int, int, int]] = []
        self.steps: list[Step] = []
        self.acceptances: list[Share] = []
        self._stop_asking_at = stop_asking_at
        self._stop_training_at = stop_training_at

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def asking(self, done: int, total: int, num_labels: int) -> None:
        self.asked.append((done, total, num_labels))

    def training(self, step: Step, acceptance: Share) -> None:
        self.steps.append(step)
        self.acceptances.append(acceptance)

    @property
    def stopped(self) -> bool:
        if self._stop_training_at is not None and len(self.steps) >= self._stop_training_at:
            return True
        return (
            self._stop_asking_at is not None
            and bool(self.asked)
            and self.asked[-1][0] >= self._stop_asking_at
        )


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of four layers whose words repeat themselves enough to be learned."""
    return save_tiny_llama(
        tmp_path_factory.mktemp("deep"), num_hidden_layers=4, initializer_range=0.12
    )


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines: list[dict[str, object]] = [
        {"turns": [f"Tell me about {i}, {i * i} and {i % 7}."]} for i in range(56)
    ]
    lines += [{"turns": [f"What of {i}?", "And why?"]} for i in range(4)]
    lines += [{"prompt": f"def f{i}(x):"} for i in range(4)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.fixture
def config(deep: Path, prompts: Path, tmp_path: Path) -> DistillationConfig:
    return DistillationConfig(
        target=deep,
        out=tmp_path / "draft",
        prompts=(prompts,),
        layers=(0, 1),
        vocabulary=320,
        max_answer=40,
        width=16,
        kv_cache_bytes=2**24,
        dtype="float32",
        training=TrainingSettings(
            epochs=3, learning_rate=3e-3, batch_tokens=512, pass_tokens=256, max_len=128
        ),
    )


@pytest.fixture
def quick(config: DistillationConfig, prompts: Path, tmp_path: Path) -> DistillationConfig:
    """The same for whom it doesn't matter how good the draft gets."""
    few = tmp_path / "few.jsonl"
    few.write_text("".join(prompts.read_text().splitlines(keepends=True)[40:]))
    training = dataclasses.replace(config.training, epochs=1, batch_tokens=128, pass_tokens=128)
    return dataclasses.replace(config, prompts=(few,), max_answer=16, training=training)
