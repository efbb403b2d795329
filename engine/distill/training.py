"""Training a draft on the target's samples, in steps that may be interrupted and gone on with."""

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.distill.batches import Batch, batches
from engine.distill.cut import trained_parameters
from engine.distill.samples import Sample
from engine.errors import ConfigError
from engine.files import replacing
from engine.kernels.linear import has_bfloat16

_WARM_UP = 0.03
"""Share of the training in which the rate of learning rises."""
_LAST_RATE = 0.03
"""Of the highest rate, at the end of the cosine."""
_LARGEST_NORM = 1.0


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    epochs: int = 3
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    batch_tokens: int = 2048
    """Padded tokens that one step of the optimiser learns from."""
    pass_tokens: int = 2048
    """Padded tokens of one forward and backward; gradients of several add up to a batch."""
    max_len: int = 512
    """Tokens of a sample that are looked at."""
    hard: bool = False
    """Learn the target's likeliest token alone, not its distribution."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of the optimiser did."""

    number: int
    loss: float
    progress: float
    """Share of the training that is done."""


class Trainer:
    """Owns the draft while it learns. Iterate over `steps()`; between two of them `save()` is safe.

    Only what lies between embedding and head is trained (`trained_parameters`), on the
    cross-entropy with the target's distribution (Hinton, Vinyals, Dean 2015, "Distilling the
    knowledge in a neural network"), of which the likeliest tokens are known.
    """

    def __init__(
        self,
        draft: PreTrainedModel,
        samples: Sequence[Sample],
        index_of: Tensor,
        settings: TrainingSettings,
        *,
        limit_s: float | None,
    ) -> None:
        """`draft` has its head trimmed to the vocabulary of `index_of` (`batches`); `limit_s`:
        seconds of training after which it ends, with its schedule fitted to that."""
        self._draft = draft
        self._samples = samples
        self._index_of = index_of
        self._settings = settings
        self._limit_s = limit_s
        self._parameters = trained_parameters(draft)
        for parameter in draft.parameters():
            parameter.requires_grad_(False)
        for parameter in self._parameters.values():
            parameter.requires_grad_(True)
        decayed = [p for p in self._parameters.values() if p.dim() > 1]
        others = [p for p in self._parameters.values() if p.dim() <= 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": settings.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=settings.learning_rate,
            betas=(0.9, 0.98),
        )
        self._tokens_in_epoch = sum(min(settings.max_len, len(s.tokens)) for s in samples)
        self._epoch = 0
        self._passes = 0
        """Done in this epoch."""
        self._tokens = 0
        """Learned from in this epoch."""
        self._number = 0
        self._spent_s = 0.0

    @property
    def progress(self) -> float:
        """Share of the training that is done: of the epochs or of the time, whichever is more."""
        share = self._tokens / self._tokens_in_epoch if self._tokens_in_epoch else 1.0
        by_tokens = (self._epoch + share) / self._settings.epochs
        by_time = self._spent_s / self._limit_s if self._limit_s else 0.0
        return min(1.0, max(by_tokens, by_time))

    def steps(self) -> Iterator[Step]:
        """Train to the end."""
        while self._epoch < self._settings.epochs:
            for together in self._left_of_epoch():
                started = time.perf_counter()
                losses = [self._learn(batch) for batch in together]
                self._update(len(losses))
                self._passes += len(together)
                self._tokens += sum(batch.num_tokens for batch in together)
                self._spent_s += time.perf_counter() - started
                yield Step(self._number, float(torch.stack(losses).mean()), self.progress)
                if self.progress >= 1.0:
                    return
            self._epoch, self._passes, self._tokens = self._epoch + 1, 0, 0

    def save(self, path: Path) -> None:
        """Atomically. Raises OSError when the disk is full."""
        state = {
            "weights": {name: p.detach() for name, p in self._parameters.items()},
            "optimizer": self._optimizer.state_dict(),
            "place": [self._epoch, self._passes, self._tokens, self._number],
            "spent_s": self._spent_s,
        }
        try:
            with replacing(path) as file:
                torch.save(state, file)
        except RuntimeError as error:  # torch's word for a disk that is full
            raise OSError(str(error).splitlines()[0]) from error

    def restore(self, path: Path) -> None:
        """Go on where `save` was called. Raises ConfigError for a file that can't be read."""
        try:
            state: dict[str, Any] = torch.load(path, weights_only=True)
            for name, parameter in self._parameters.items():
                parameter.data.copy_(state["weights"][name])
            self._optimizer.load_state_dict(state["optimizer"])
            self._epoch, self._passes, self._tokens, self._number = state["place"]
            self._spent_s = state["spent_s"]
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            raise ConfigError(f"{path} can't be gone on with: {reason}; remove it") from error

    def _batches(self) -> Iterator[Batch]:
        settings = self._settings
        return batches(
            self._samples,
            self._index_of,
            max_tokens=settings.pass_tokens,
            max_len=settings.max_len,
            seed=settings.seed * 1000 + self._epoch,
            hard=settings.hard,
        )

    def _left_of_epoch(self) -> Iterator[list[Batch]]:
        """As many passes together as a step of the optimiser learns from."""
        settings = self._settings
        together: list[Batch] = []
        tokens = 0
        for batch in itertools.islice(self._batches(), self._passes, None):
            together.append(batch)
            tokens += batch.token_ids.numel()
            if tokens + settings.pass_tokens / 2 >= settings.batch_tokens:
                yield together
                together, tokens = [], 0
        if together:
            yield together

    def _learn(self, batch: Batch) -> Tensor:
        self._draft.train()
        logits = label_logits(self._draft, batch)
        weights = batch.label_probs.sum(dim=-1)  # 1, or 0 where nothing is to be learned
        said = (batch.label_probs * logits.gather(1, batch.label_ids)).sum(dim=-1)
        loss = ((logits.logsumexp(dim=-1) - said) * weights).sum() / weights.sum().clamp(min=1)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _update(self, passes: int) -> None:
        rate = self._settings.learning_rate * _rate(self.progress)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        for parameter in self._parameters.values():
            if parameter.grad is not None and passes > 1:
                parameter.grad /= passes
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), _LARGEST_NORM)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._number += 1


def label_logits(draft: PreTrainedModel, batch: Batch) -> Tensor:
    """float32 [labelled, kept vocabulary]."""
    device = draft.device
    narrow = torch.autocast(device.type, torch.bfloat16) if has_bfloat16(device) else nullcontext()
    with narrow:
        logits: Tensor = draft(
            input_ids=batch.token_ids.to(device),
            use_cache=False,
            logits_to_keep=batch.token_ids.shape[1] - batch.first,
        ).logits
    return logits.flatten(0, 1)[batch.places.to(device)].float()


@torch.inference_mode()
def matches(
    draft: PreTrainedModel,
    samples: Sequence[Sample],
    index_of: Tensor,
    *,
    pass_tokens: int,
    max_len: int,
) -> tuple[int, int]:
    """At how many places the draft's likeliest token is the target's, and of how many."""
    draft.train(False)
    right = tried = 0
    for batch in batches(samples, index_of, max_tokens=pass_tokens, max_len=max_len, seed=None):
        guesses = label_logits(draft, batch).argmax(dim=-1).cpu()
        right += int(((guesses == batch.label_ids[:, 0]) & batch.is_known).sum())
        tried += len(guesses)
    return right, tried


def _rate(progress: float) -> float:
    """Share of the highest rate of learning.

    >>> round(_rate(0.0), 2), round(_rate(_WARM_UP), 2), round(_rate(1.0), 2)
    (0.03, 1.0, 0.03)
    """
    if progress < _WARM_UP:
        return _LAST_RATE + (1 - _LAST_RATE) * progress / _WARM_UP
    falling = (progress - _WARM_UP) / (1 - _WARM_UP)
    return _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * falling))
