"""What a replica says of its load, and the numbers by name that Ray Serve carries it in."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise

_SECONDS_AT = "seconds_per_token_at_"


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """Of one replica, at one moment. Raises ValueError for what can't be."""

    num_requests: float = 0.0
    """Running and waiting."""
    num_running: float = 0.0
    """Those that hold KV."""
    prompt_tokens: float = 0.0
    """Left to compute, of all its requests."""
    new_tokens: float = 0.0
    """Expected to come, of all its requests."""
    prompt_tokens_per_s: float = 0.0
    """Of the requests that came in the last minute."""
    new_tokens_per_s: float = 0.0
    """Expected of them."""
    recent_prompt_tokens_per_s: float = 0.0
    """Of the requests that came in the last seconds, but for bursts."""
    recent_new_tokens_per_s: float = 0.0
    """Expected of them."""
    kv_use: float = 0.0
    """Share of the KV blocks that running sequences hold."""
    max_num_seqs: float = 1.0
    """Sequences that run at once, at most."""
    seconds_per_prompt_token: float = 0.0
    seconds_per_token: tuple[tuple[int, float], ...] = ()
    """(batch size, seconds from one token of a sequence to its next), by rising batch size; empty
    while nothing is known."""

    def __post_init__(self) -> None:
        for name in _PLAIN:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number from 0 on, got {value}")
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs must be at least 1, got {self.max_num_seqs}")
        previous = 0
        for batch_size, seconds in self.seconds_per_token:
            if batch_size <= previous or not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(
                    "seconds_per_token must have rising batch sizes and positive seconds, got "
                    f"{seconds} at {batch_size} after {previous}"
                )
            previous = batch_size

    def as_stats(self) -> dict[str, float]:
        """Numbers by name: all that Serve carries."""
        table = {f"{_SECONDS_AT}{size}": seconds for size, seconds in self.seconds_per_token}
        return {name: float(getattr(self, name)) for name in _PLAIN} | table

    @classmethod
    def from_stats(cls, stats: Mapping[str, float]) -> "ReplicaLoad":
        """Names that it doesn't know are left out. Raises ValueError when one is missing or can't
        be."""
        missing = [name for name in _PLAIN if name not in stats]
        if missing:
            raise ValueError(f"stats lack {missing[0]}")
        table = sorted(
            (int(name.removeprefix(_SECONDS_AT)), float(value))
            for name, value in stats.items()
            if name.startswith(_SECONDS_AT)
        )
        return cls(**{name: float(stats[name]) for name in _PLAIN}, seconds_per_token=tuple(table))

    @property
    def is_paced(self) -> bool:
        """Whether it is known how long its work takes, or there is none."""
        is_idle = not (self.num_requests or self.new_tokens_per_s or self.recent_new_tokens_per_s)
        return bool(self.seconds_per_token) or is_idle

    def seconds_at(self, batch_size: float) -> float:
        """Seconds a token at a batch size, between the table's points on straight lines; beyond
        the last in proportion to the batch, which is the worst that can be. 0 without a table."""
        table = self.seconds_per_token
        if not table:
            return 0.0
        if batch_size <= table[0][0]:
            return table[0][1]
        for (low, before), (high, after) in pairwise(table):
            if batch_size <= high:
                return before + (after - before) * (batch_size - low) / (high - low)
        last, seconds = table[-1]
        return seconds * batch_size / last

    def largest_batch(self, limit_s: float) -> float:
        """The largest batch size that takes `limit_s` a token at most, and runs at once; at least
        1, though one sequence alone may take longer."""
        if not self.seconds_per_token:
            return self.max_num_seqs
        last, seconds = self.seconds_per_token[-1]
        if seconds <= limit_s:
            return min(self.max_num_seqs, last * limit_s / seconds)
        pairs = list(pairwise(self.seconds_per_token))
        for (low, before), (high, after) in reversed(pairs):
            if before <= limit_s:
                found = low + (high - low) * (limit_s - before) / (after - before)
                return max(1.0, min(self.max_num_seqs, found))
        return 1.0


_PLAIN = tuple(field.name for field in fields(ReplicaLoad) if field.name != "seconds_per_token")
