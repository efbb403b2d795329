"""The second half of a distillation: a draft is cut from the target, learns, and is written."""

import dataclasses
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import PreTrainedModel

from engine.distill.batches import most_said
from engine.distill.config import (
    ASKING_SHARE,
    DistillationConfig,
    Distilled,
    Interrupted,
    Watcher,
    is_held_out,
)
from engine.distill.cut import cut, like, spread, trained_parameters
from engine.distill.folder import write_draft
from engine.distill.plot import Point, plot_training
from engine.distill.samples import Sample
from engine.distill.shares import Share
from engine.distill.training import Step, Trainer, TrainingSettings, matches
from engine.errors import ConfigError
from engine.files import write_json
from engine.memory import require_room_for
from engine.model import read_model, vocab_size
from engine.vocabulary import trim_head

_CHECK_EVERY_S = 60.0
_CHECKED_LABELS = 8192
"""Held-out places looked at during training; in the end all are."""


def learn(
    config: DistillationConfig,
    samples: Sequence[Sample],
    num_sources: int,
    work: Path,
    watcher: Watcher,
) -> Distilled:
    """Raises Interrupted, ConfigError, or OSError when the disk is full; checkpoints stay."""
    learned = [sample for sample in samples if not is_held_out(sample.source, num_sources)]
    held_out = [sample for sample in samples if is_held_out(sample.source, num_sources)]
    watcher.stage(f"cutting a draft from {config.target.name}")
    whole, layers = _cut(config)
    size = vocab_size(whole)
    vocabulary, coverage = most_said(learned, min(config.vocabulary, size))
    index_of = torch.full((size,), -1)
    index_of[torch.tensor(vocabulary)] = torch.arange(len(vocabulary))
    stored_dtype = whole.dtype
    whole = whole.to(torch.float32)  # type: ignore[arg-type]
    draft = _trimmed(whole, vocabulary)
    limit_s = None if config.minutes is None else 60 * config.minutes * (1 - ASKING_SHARE)
    trainer = Trainer(draft, learned, index_of, config.training, limit_s=limit_s)
    history = _Run(config, trainer, work).train(
        draft, _some(held_out, _CHECKED_LABELS), index_of, watcher
    )

    watcher.stage("testing the draft on held-out prompts")
    for name, parameter in trained_parameters(draft).items():
        rounded = parameter.detach().to(stored_dtype)
        parameter.data.copy_(rounded)
        whole.get_parameter(name).data.copy_(rounded)
    acceptance = _acceptance(draft, held_out, index_of, config.training)
    plot = work / "training.png"
    plot_training(history, plot)
    num_labels = sum(sample.num_labels for sample in learned)
    about = {
        "target": config.target.name,
        "layers": layers,
        "vocabulary": len(vocabulary),
        "vocabulary_coverage": coverage,
        "sources_answered": len({sample.source for sample in samples}),
        "places_learned_from": num_labels,
        "steps": history[-1].step,
        "training": dataclasses.asdict(config.training),
        "held_out_greedy_acceptance_at_position_1": acceptance.as_json(),
        "versions": {name: version(name) for name in ("paceline", "torch", "transformers")},
    }
    watcher.stage(f"writing {config.out}")
    whole = whole.to(stored_dtype)
    everything = len(vocabulary) == size
    write_draft(config.out, whole, None if everything else vocabulary, config.target, about, plot)
    return Distilled(config.out, acceptance, num_labels)


class _Run:
    """A training with its files."""

    def __init__(self, config: DistillationConfig, trainer: Trainer, work: Path) -> None:
        self._settings = config.training
        self._trainer = trainer
        self._checkpoint = work / "checkpoint.pt"
        self._history = work / "history.json"

    def train(
        self,
        draft: PreTrainedModel,
        held_out: Sequence[Sample],
        index_of: torch.Tensor,
        watcher: Watcher,
    ) -> list[Point]:
        def check(step: int, losses: Sequence[float]) -> Share:
            share = _acceptance(draft, held_out, index_of, self._settings)
            loss = sum(losses) / max(1, len(losses))
            points.append(Point(step, loss, share.right, share.tried))
            return share

        points: list[Point] = []
        if self._checkpoint.exists():
            self._trainer.restore(self._checkpoint)
            points = [Point(*point) for point in json.loads(self._history.read_text())]
            share = Share(points[-1].right, points[-1].tried)
        else:
            share = check(0, [])
        losses: list[float] = []
        checked = time.monotonic()
        step = Step(points[-1].step, 0.0, self._trainer.progress)
        for step in self._trainer.steps():
            losses.append(step.loss)
            watcher.training(step, share)
            if watcher.stopped or time.monotonic() - checked >= _CHECK_EVERY_S:
                share = check(step.number, losses)
                losses = []
                self._save(points)
                checked = time.monotonic()
            if watcher.stopped:
                raise Interrupted
        if losses:
            check(step.number, losses)
        self._save(points)
        return points

    def _save(self, points: Sequence[Point]) -> None:
        # In this order: a history that is one point ahead of its checkpoint does no harm.
        write_json(self._history, [dataclasses.astuple(point) for point in points])
        self._trainer.save(self._checkpoint)


def _acceptance(
    draft: PreTrainedModel,
    samples: Sequence[Sample],
    index_of: torch.Tensor,
    settings: TrainingSettings,
) -> Share:
    return Share(
        *matches(
            draft,
            samples,
            index_of,
            pass_tokens=settings.pass_tokens,
            max_len=settings.max_len,
        )
    )


def _some(samples: Sequence[Sample], num_labels: int) -> list[Sample]:
    """The first ones with so many places."""
    some: list[Sample] = []
    for sample in samples:
        if num_labels <= 0:
            break
        some.append(sample)
        num_labels -= sample.num_labels
    return some


def _cut(config: DistillationConfig) -> tuple[PreTrainedModel, list[int]]:
    require_room_for([config.target], None, torch.device("cpu"))
    target = read_model(config.target, "auto", trust_remote_code=config.trust_remote_code)
    depth = int(target.config.get_text_config().num_hidden_layers)
    if isinstance(config.layers, tuple):
        layers = list(config.layers)
    elif config.layers <= depth:
        layers = spread(depth, config.layers)
    else:
        raise ConfigError(
            f"--layers must be at most {depth}, all the target has, got {config.layers}"
        )
    if len(set(layers)) < len(layers) or not all(0 <= layer < depth for layer in layers):
        raise ConfigError(f"--layers must be different ones from 0 to {depth - 1}, got {layers}")
    return cut(target, layers).to(config.device), layers  # type: ignore[arg-type]


def _trimmed(whole: PreTrainedModel, vocabulary: Sequence[int]) -> PreTrainedModel:
    """A copy to be trained."""
    draft = like(whole, whole.config)
    draft.load_state_dict(whole.state_dict())
    trim_head(draft, vocabulary)
    return draft
