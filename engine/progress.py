"""How long a step may take before the engine counts as stalled."""

MARGIN = 8
"""A step is slow beyond doubt when it takes so many times what its tokens took at best."""
FIRST_STEPS = 6
"""How much longer than others the first step may take, about which nothing is known."""


class Patience:
    """At least `stall_s` seconds; longer for a step so large that it may honestly take that.

    A prompt's part of 512 tokens takes a large model on a CPU longer than ten seconds. What it may
    take is told by the steps before: a token of a large step never costs more than one of a small
    step, since all of a step's tokens share one pass over the weights.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._token_s: float | None = None
        """Seconds for a token in the step where it took the fewest."""

    def note(self, num_tokens: int, seconds: float) -> None:
        """A step has been done."""
        if num_tokens:
            each = seconds / num_tokens
            self._token_s = each if self._token_s is None else min(self._token_s, each)

    def limit_s(self, num_tokens: int) -> float:
        """For a step of so many tokens."""
        if self._token_s is None:
            return FIRST_STEPS * self._stall_s
        return max(self._stall_s, MARGIN * num_tokens * self._token_s)
