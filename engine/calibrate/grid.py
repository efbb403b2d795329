"""Which points are measured: batch sizes, draft lengths, contexts."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.errors import ConfigError

LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16)
CONTEXTS = (128, 1024)


@dataclass(frozen=True, slots=True)
class Grid:
    """Ascending values without repetition."""

    batch_sizes: tuple[int, ...]
    """Sequences that decode at once."""
    draft_lens: tuple[int, ...]
    """Draft tokens of each; 0 and 1 are among them."""
    contexts: tuple[int, ...]
    """Known tokens of each sequence. The first has all lengths, the others a few: what is between
    them moves with the first."""

    def __post_init__(self) -> None:
        for name, least in (("batch_sizes", 1), ("draft_lens", 0), ("contexts", 1)):
            values = getattr(self, name)
            if not values or values[0] < least or list(values) != sorted(set(values)):
                raise ValueError(
                    f"{name} must be different numbers from {least} up in ascending order, "
                    f"got {values}"
                )
        if self.draft_lens[:2] != (0, 1):
            raise ValueError(f"draft_lens must hold 0 and 1, got {self.draft_lens}")


def default_grid(config: EngineConfig, max_model_len: int) -> Grid:
    """What covers an engine of this configuration, whose sequences have `max_model_len` tokens.

    Raises ConfigError where nothing can be drafted: there is nothing to choose then.
    """
    # A sequence has one known token at least, and one beyond the draft must fit.
    longest = min(config.max_draft_len, max_model_len - 2)
    if config.drafter.kind == "none" or longest < 1:
        raise ConfigError(
            f"nothing can be drafted, so there is nothing to calibrate: drafter.kind is "
            f"{config.drafter.kind!r}, engine.max_draft_len {config.max_draft_len} and the "
            f"context limit {max_model_len} tokens"
        )
    room = max_model_len - longest - 1
    return Grid(
        _up_to(config.max_num_seqs, [1 << i for i in range(config.max_num_seqs.bit_length())]),
        _up_to(longest, LENGTHS),
        tuple(sorted({min(context, room) for context in CONTEXTS})),
    )


def _up_to(last: int, values: Sequence[int]) -> tuple[int, ...]:
    return (*(value for value in values if value < last), last)
