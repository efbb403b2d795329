"""What a person may ask for: `adaptive`, `off`, `{fixed: K}` or `{table: {batch: length}}`."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from policy.quoting import shown
from policy.table import MAX_DRAFT_LEN, UNBOUNDED_BATCH_SIZE, fixed_rungs, rungs_from

PolicyMode = Literal["off", "fixed", "table", "adaptive"]

ALLOWED = "adaptive, off, {fixed: K} or {table: {batch: length, ...}}"
MAX_RUNGS = 64
"""More than anybody measures; it bounds what the board keeps and every replica is sent."""


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy chosen by a person, as rungs ready for a table."""

    mode: PolicyMode
    rungs: tuple[tuple[int, int], ...]
    """What the person wrote; none in adaptive mode, whose rungs are measured."""

    @property
    def max_draft_len(self) -> int:
        """Longest draft length of any rung, in tokens."""
        return max((length for _, length in self.rungs), default=0)

    @property
    def fingerprint(self) -> str:
        """Short hash: equal exactly when mode and rungs are equal."""
        canonical = json.dumps([self.mode, [list(rung) for rung in self.rungs]])
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def setting(self) -> str | dict[str, Any]:
        """What `parse_choice` reads as this choice, in JSON's types."""
        if self.mode in ("off", "adaptive"):
            return self.mode
        if self.mode == "fixed":
            return {"fixed": self.max_draft_len}
        return {"table": {str(batch_size): length for batch_size, length in self.rungs}}

    def limited_to(self, max_draft_len: int) -> "PolicyChoice":
        """This choice. Raises ValueError when it asks for longer drafts than the engine makes."""
        if self.max_draft_len > max_draft_len:
            reason = (
                "there is no drafter (drafter.kind is none)"
                if max_draft_len == 0
                else "engine.max_draft_len is the limit"
            )
            raise ValueError(
                f"draft length must be at most {max_draft_len}, got {self.max_draft_len}: {reason}"
            )
        return self


def parse_choice(value: object) -> PolicyChoice:
    """Read a policy from YAML or JSON. Raises ValueError with one short line that shows the value.

    The line reads well after `policy: `, and after `policy` and a dot, or a blank if it begins
    with `must`. YAML reads a bare `off` as False, JSON turns the batch sizes into strings: both
    are accepted.

    >>> parse_choice({"table": {"1": 5, 8: 2}}).rungs
    ((1, 5), (8, 2))
    """
    if value is False or value == "off":
        return PolicyChoice("off", ())
    if value == "adaptive":
        return PolicyChoice("adaptive", ())
    if isinstance(value, Mapping) and len(value) == 1:
        key, setting = next(iter(value.items()))
        if key == "fixed":
            return PolicyChoice("fixed", fixed_rungs(_draft_len(setting, "fixed")))
        if key == "table":
            return _table(setting)
    raise ValueError(f"must be {ALLOWED}, got {shown(value)}")


def _table(setting: object) -> PolicyChoice:
    if not isinstance(setting, Mapping) or not setting:
        raise ValueError(
            "table must map batch sizes to draft lengths, such as {1: 5, 8: 2}, "
            f"got {shown(setting)}"
        )
    if len(setting) > MAX_RUNGS:
        raise ValueError(f"table must have at most {MAX_RUNGS} batch sizes, got {len(setting)}")
    lengths: dict[int, int] = {}
    for key, value in setting.items():
        batch_size = _batch_size(key)
        if batch_size in lengths:
            raise ValueError(f"table gives batch size {batch_size} twice")
        lengths[batch_size] = _draft_len(value, f"table[{batch_size}]")
    return PolicyChoice("table", rungs_from(lengths))


def _batch_size(key: object) -> int:
    number = key
    if isinstance(key, str) and key.strip().isascii() and key.strip().isdigit():
        # Cut: int() refuses some thousand digits, and no batch size allowed has as many as these.
        digits = key.strip().lstrip("0") or "0"
        number = int(digits[: len(str(UNBOUNDED_BATCH_SIZE)) + 1])
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"table must have whole numbers as batch sizes, got {shown(key)}")
    if not 1 <= number <= UNBOUNDED_BATCH_SIZE:
        raise ValueError(
            f"table must have batch sizes between 1 and {UNBOUNDED_BATCH_SIZE}, "
            f"got {shown(key if number > UNBOUNDED_BATCH_SIZE else number)}"
        )
    return number


def _draft_len(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        # A bad value in a document, not a caller's mistake: readers catch ValueError alone.
        raise ValueError(f"{name} must be a whole number, got {shown(value)}")
    if not 0 <= value <= MAX_DRAFT_LEN:
        raise ValueError(f"{name} must be between 0 and {MAX_DRAFT_LEN}, got {shown(value)}")
    return value
