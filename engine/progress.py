"""How long a step may take before the engine counts as stalled."""

import math

MARGIN = 8
"""A step is slow beyond doubt when it takes so many times what its tokens took at best."""


class Patience:
    """At least `stall_s` seconds; longer for a step so large that it may honestly take that.

    A prompt's part of 512 tokens takes a large model on a CPU longer than ten seconds. What it may
    take is told by a rehearsal (`rehearsal.py`) and by the steps before: a token of a large step
    never costs more than one of a small step, since all of a step's tokens share one pass over the
    weights.
    """

    def __init__(self, stall_s: float, token_s: float = math.inf) -> None:
        """`token_s`: seconds that a token takes at best, as far as known before the first step."""
        self._stall_s = stall_s
        self._token_s = token_s
        """Seconds for a token in the step where it took the fewest."""

    def note(self, num_tokens: int, seconds: float) -> None:
        """A step has been done."""
        if num_tokens:
            self._token_s = min(self._token_s, seconds / num_tokens)

    def limit_s(self, num_tokens: int) -> float:
        """For a step of so many tokens."""
        if math.isinf(self._token_s):
            return self._stall_s
        return max(self._stall_s, MARGIN * num_tokens * self._token_s)
