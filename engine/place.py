"""A place in a text whose token is to be chosen."""

from dataclasses import dataclass

from engine.plan import SeqSlice
from engine.request import SamplingParams


@dataclass(frozen=True, slots=True)
class Place:
    """Behind the known tokens of a slice that samples, and behind some of its drafted ones.

    All that a token's choice may depend on beside the logits: the request's parameters and seed,
    the position, and the tokens before it.
    """

    part: SeqSlice
    drafted: tuple[int, ...] = ()

    @property
    def sampling(self) -> SamplingParams:
        return self.part.sampling

    @property
    def position(self) -> int:
        """Index of the token to choose, in its sequence."""
        return self.part.end + len(self.drafted)

    @property
    def num_output(self) -> int:
        return self.position - self.part.num_prompt

    def output(self) -> list[int]:
        """The new tokens before this place."""
        return [*self.part.output(), *self.drafted]
