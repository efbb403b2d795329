"""Finds, in rows of logits, the few tokens that sampling has to look at.

The passes over whole vocabularies are all here, once for a CPU and once for other devices; what
comes out is small and lies on the host.
"""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.noise import hashes, hashes_on_device

_GROUP = 64
"""The k-th largest of the largest of each group of tokens is no larger than the k-th of all."""


@dataclass(frozen=True, slots=True)
class Sieve:
    """Which tokens of a row are wanted: those that reach both the floor and the top-k, and those
    with a small hash whatever their logit. Some more may come."""

    floor: float = -np.inf
    """In logits."""
    top_k: int = 0
    """0: any number."""
    key: NDArray[np.uint32] | None = None
    """[2], of the hashes; None: no hash is small."""
    largest_hash: int = 0


@dataclass(frozen=True, slots=True)
class Candidates:
    """Some tokens of one row, in ascending order."""

    token_ids: NDArray[np.uint32]
    logits: NDArray[np.float32]


class Rows(Protocol):
    """Logits at some places, each [vocab]."""

    def likeliest(self) -> list[tuple[int, float]]:
        """The first of each row's largest logits, and the logit; a NaN counts as the largest."""

    def sift(self, sieves: dict[int, Sieve]) -> dict[int, Candidates]:
        """The candidates of some rows, by their index."""

    def mass(self, row: int, largest: float, temperature: float) -> float:
        """Sum of exp((logit - largest) / temperature) over a row."""


def rows_of(logits: ReadOnly[Tensor]) -> Rows:
    """Of at least one row, all on one device."""
    return HostRows(logits) if logits[0].device.type == "cpu" else DeviceRows(logits)


class HostRows:
    """Row by row, so that a core's cache holds what is passed over. numpy compares and searches up
    to ten times faster than torch does on a CPU."""

    def __init__(self, logits: ReadOnly[Tensor]) -> None:
        self._rows: list[NDArray[np.float32]] = [row.float().numpy() for row in logits]

    def likeliest(self) -> list[tuple[int, float]]:
        tokens = [int(row.argmax()) for row in self._rows]
        return [(token, float(row[token])) for row, token in zip(self._rows, tokens, strict=True)]

    def sift(self, sieves: dict[int, Sieve]) -> dict[int, Candidates]:
        return {row: _sift(self._rows[row], sieve) for row, sieve in sieves.items()}

    def mass(self, row: int, largest: float, temperature: float) -> float:
        scaled = torch.from_numpy(self._rows[row]) - largest
        return float(scaled.div_(temperature).exp_().numpy().sum(dtype=np.float64))


def _sift(row: NDArray[np.float32], sieve: Sieve) -> Candidates:
    floor = sieve.floor
    num_groups = len(row) // _GROUP
    if 0 < sieve.top_k <= num_groups:
        largest = row[: num_groups * _GROUP].reshape(_GROUP, num_groups).max(axis=0)
        floor = max(floor, float(np.partition(largest, -sieve.top_k)[-sieve.top_k]))
    wanted = row >= np.float32(floor)
    if sieve.key is not None:
        wanted |= hashes(sieve.key, _every_token(len(row))) <= np.uint32(sieve.largest_hash)
    token_ids = wanted.nonzero()[0]
    return Candidates(token_ids.astype(np.uint32), row[token_ids])


@lru_cache(maxsize=2)  # the target's vocabulary and the draft's
def _every_token(vocab: int) -> NDArray[np.uint32]:
    return np.arange(vocab, dtype=np.uint32)


class DeviceRows:
    """All rows at once: an accelerator's calls cost more than their work."""

    def __init__(self, logits: ReadOnly[Tensor]) -> None:
        self._rows = torch.stack([*logits]).float()

    def likeliest(self) -> list[tuple[int, float]]:
        token_ids = self._rows.argmax(dim=1, keepdim=True)
        values = self._rows.gather(1, token_ids)
        return list(zip(token_ids[:, 0].tolist(), values[:, 0].tolist(), strict=True))

    def sift(self, sieves: dict[int, Sieve]) -> dict[int, Candidates]:
        if not sieves:
            return {}
        rows, device = self._rows, self._rows.device
        if len(sieves) < len(rows):
            rows = rows[torch.tensor([*sieves], device=device)]
        parts = [*sieves.values()]
        floors = torch.tensor([sieve.floor for sieve in parts], device=device)
        wanted = rows >= torch.maximum(floors, self._top_k_floors(rows, parts)).unsqueeze(1)
        keys = {i: sieve.key for i, sieve in enumerate(parts) if sieve.key is not None}
        if keys:
            found = hashes_on_device(np.stack([*keys.values()]), rows.shape[1], device)
            limits = torch.tensor([[parts[index].largest_hash] for index in keys], device=device)
            wanted[torch.tensor([*keys], device=device)] |= found <= limits
        at, token_ids = wanted.nonzero(as_tuple=True)
        ends = torch.bincount(at, minlength=len(parts)).cumsum(0).tolist()
        host_ids = token_ids.cpu().numpy().astype(np.uint32)
        host_logits = rows[at, token_ids].cpu().numpy()
        return {
            row: Candidates(host_ids[start:end], host_logits[start:end])
            for row, start, end in zip(sieves, [0, *ends[:-1]], ends, strict=True)
        }

    @staticmethod
    def _top_k_floors(rows: Tensor, sieves: list[Sieve]) -> Tensor:
        """[rows]; -inf where top-k sets none."""
        num_groups = rows.shape[1] // _GROUP
        counts = [sieve.top_k if sieve.top_k <= num_groups else 0 for sieve in sieves]
        if not any(counts):
            return torch.full((len(rows),), -torch.inf, device=rows.device)
        largest = rows[:, : num_groups * _GROUP].view(-1, _GROUP, num_groups).amax(dim=1)
        ranked = largest.topk(max(counts), dim=1).values
        at = torch.tensor(counts, device=rows.device).unsqueeze(1)
        floors = ranked.gather(1, (at - 1).clamp_(min=0))
        return floors.masked_fill(at == 0, -torch.inf).squeeze(1)

    def mass(self, row: int, largest: float, temperature: float) -> float:
        return float(((self._rows[row] - largest) / temperature).exp().sum(dtype=torch.float64))
