"""What passes cost: by a calibration that Paceline has measured, or by the roofline of a GPU."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deployments.simulate.hardware import MACHINES, MODELS, Assumptions
from deployments.simulate.roofline import RooflineCosts
from engine.calibrate.grid import CONTEXTS, LENGTHS
from engine.costed import PassCosts
from engine.errors import ConfigError
from policy.cost import Calibration, CostCell, CostModel
from policy.lines import Line, along, rising

BLOCK_SIZE = 16
_MEASURED_CONTEXT = 2048
"""Tokens of KV for each sequence, where a calibration doesn't tell how many there are."""
_MEASURED_MODEL_LEN = 8192


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of replica."""

    name: str
    costs: PassCosts
    calibration: Calibration
    """What such a replica would measure of itself, and tell the policy."""
    max_num_seqs: int
    max_step_tokens: int
    max_draft_len: int
    num_blocks: int
    max_model_len: int
    about: Mapping[str, Any] = field(default_factory=dict)
    """For the report."""


class MeasuredCosts:
    """`PassCosts` by a calibration. `prompts`: seconds of passes over a prompt alone, by its tokens
    (2 or more). Without them a prompt token takes what one more token does in the largest pass that
    was measured, on top of a step of one: somewhat more than it does, as those have logits, and as
    many tokens hide the reading of the weights."""

    def __init__(
        self, calibration: Calibration, prompts: Mapping[int, float] | None = None
    ) -> None:
        self._model = CostModel(calibration)
        self._contexts = calibration.contexts
        size, length = calibration.batch_sizes[-1], calibration.draft_lens[-1]
        at_most = [self._model.at(size, context).target for context in self._contexts]
        added = min(target(length) - target(0.0) for target in at_most)
        each = max(0.0, added) / (size * length)
        alone = self._model.target_seconds(1, 0, self._contexts[0])
        known = sorted((prompts or {2: alone + each}).items())
        # By the tokens after the first, which a step of one has too.
        self._further = Line(
            [0, *(tokens - 1 for tokens, _ in known)],
            rising([0.0, *(seconds - alone for _, seconds in known)]),
        )
        smallest = calibration.batch_sizes[0]
        drafts = [self._model.draft_seconds(b, 1, self._contexts[0]) for b in (smallest, size)]
        self._behind_s = max(0.0, drafts[1] - drafts[0]) / max(1, size - smallest)
        """For a token that the draft model has yet to read: as for one more sequence."""
        self._target: dict[tuple[int, int], list[float]] = {}
        self._draft: dict[tuple[int, int], list[float]] = {}

    def target_seconds(
        self, num_decoding: int, num_drafted: int, num_prompt: int, context: float
    ) -> float:
        batch_size = num_decoding
        if not num_decoding:
            batch_size, num_prompt = 1, num_prompt - 1
        row = self._target.get((batch_size, num_drafted))
        if row is None:
            row = [self._model.target_seconds(batch_size, num_drafted, c) for c in self._contexts]
            self._target[batch_size, num_drafted] = row
        seconds = along(self._contexts, row, context)
        if not num_prompt:
            return seconds
        # What few tokens hide of reading the weights is hidden once.
        others = batch_size + num_drafted - 1
        return seconds + self._further(others + num_prompt) - self._further(others)

    def least_seconds(self, num_decoding: int) -> float:
        # Neither more sequences nor more tokens take less, at one context.
        return min([self.target_seconds(num_decoding, 0, 0, c) for c in self._contexts])

    def draft_seconds(
        self, num_drafting: int, longest: int, num_behind: int, context: int
    ) -> float:
        row = self._draft.get((num_drafting, longest))
        if row is None:
            row = [self._model.draft_seconds(num_drafting, longest, c) for c in self._contexts]
            self._draft[num_drafting, longest] = row
        each = along(self._contexts, row, context / num_drafting)
        return each + num_behind * self._behind_s


def profile_of(
    cost: str,
    *,
    draft: str | None = None,
    max_num_seqs: int | None = None,
    max_draft_len: int = 8,
) -> Profile:
    """By the name of a machine, or by a file with a calibration. Raises ConfigError."""
    if cost in MACHINES:
        return _roofline_profile(cost, draft, max_num_seqs or 64, max_draft_len)
    path = Path(cost)
    if not path.is_file():
        raise ConfigError(
            f"--cost must be {', '.join(MACHINES)} or a file with a calibration, got {cost!r}"
        )
    if draft is not None:
        raise ConfigError(f"--draft goes with {', '.join(MACHINES)}; {cost} has measured its own")
    calibration, about = read_calibration(path)
    most = max_num_seqs or calibration.batch_sizes[-1]
    return measured_profile(
        path.stem, calibration, max_num_seqs=most, max_draft_len=max_draft_len, about=about
    )


def measured_profile(
    name: str,
    calibration: Calibration,
    *,
    max_num_seqs: int,
    max_draft_len: int,
    num_blocks: int | None = None,
    prompts: Mapping[int, float] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Profile:
    """Of a machine that has calibrated itself."""
    return Profile(
        name,
        MeasuredCosts(calibration, prompts),
        calibration,
        max_num_seqs=max_num_seqs,
        max_step_tokens=max(512, 2 * max_num_seqs),
        max_draft_len=min(max_draft_len, calibration.draft_lens[-1]),
        num_blocks=num_blocks or max_num_seqs * _MEASURED_CONTEXT // BLOCK_SIZE,
        max_model_len=_MEASURED_MODEL_LEN,
        about={"measured": dict(about or {})},
    )


def read_calibration(path: Path) -> tuple[Calibration, Mapping[str, Any]]:
    """Of a file that Paceline keeps, or that `paceline calibrate --json` wrote; and what it tells
    of the machine. Raises ConfigError."""
    try:
        told = json.loads(path.read_bytes())
        if not isinstance(told, dict) or "calibration" not in told:
            raise ValueError("it has no calibration")
        about = told.get("about") or told.get("kind") or {}
        return Calibration.from_json(told["calibration"]), about
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--cost {path}: not a calibration: {error}") from error


def _roofline_profile(
    name: str, draft_name: str | None, max_num_seqs: int, max_draft_len: int
) -> Profile:
    machine, assumed = MACHINES[name], Assumptions()
    if draft_name is not None and draft_name not in MODELS:
        raise ConfigError(f"--draft must be one of {', '.join(MODELS)}, got {draft_name!r}")
    draft = machine.draft if draft_name is None else MODELS[draft_name]
    costs = RooflineCosts(machine, draft, assumed)
    target, gpu = machine.target, machine.gpu
    room = machine.num_gpus * gpu.memory_bytes * assumed.memory_share
    # Draft and draft's KV lie on one GPU beside its share of the target; as shares of the pool are
    # alike, the others have as much less.
    room -= target.memory_bytes + machine.num_gpus * draft.memory_bytes
    per_token = target.kv_bytes_per_token + machine.num_gpus * draft.kv_bytes_per_token
    return Profile(
        name,
        costs,
        roofline_calibration(costs, max_num_seqs, max_draft_len),
        max_num_seqs=max_num_seqs,
        max_step_tokens=2048,
        max_draft_len=max_draft_len,
        num_blocks=int(room / per_token) // BLOCK_SIZE,
        max_model_len=machine.max_model_len,
        about={
            "gpu": gpu.name,
            "num_gpus": machine.num_gpus,
            "target": asdict(target),
            "draft": asdict(draft),
            "assumed": asdict(assumed),
            "source": gpu.source,
        },
    )


def roofline_calibration(costs: PassCosts, max_num_seqs: int, max_draft_len: int) -> Calibration:
    """What a replica would measure on the grid that it measures by default."""
    sizes = sorted({*(1 << i for i in range(max_num_seqs.bit_length())), max_num_seqs})
    lengths = sorted({*(n for n in LENGTHS if n <= max_draft_len), max_draft_len})
    return Calibration(
        tuple(
            CostCell(
                size,
                length,
                context,
                costs.target_seconds(size, size * length, 0, float(context)),
                costs.draft_seconds(size, length, 0, size * context) if length else 0.0,
            )
            for context in CONTEXTS
            for size in sizes
            if size <= max_num_seqs
            for length in lengths
        )
    )
