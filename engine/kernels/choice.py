"""The sampling rule of `sampling.py` as an operator: many rows at a time, on all cores."""

from collections.abc import Sequence as ReadOnly

import numpy as np
import torch
from torch import Tensor

from engine.noise import keys
from engine.place import Place


def choose(rows: ReadOnly[Tensor], places: ReadOnly[Place]) -> list[int]:
    """As `sampling.choose`, for rows on a CPU; `native.load` comes first."""
    if not rows:
        return []
    samplings = [place.sampling for place in places]
    parameters = torch.tensor(
        [(0.0 if s.is_greedy else s.temperature, s.top_p, s.min_p, s.top_k) for s in samplings],
        dtype=torch.float64,
    )
    noise_keys = keys([(place.part.seed, place.position) for place in places]).view(np.int32)
    chosen: list[int] = torch.ops.paceline.choose(rows, parameters, torch.from_numpy(noise_keys))
    return chosen
