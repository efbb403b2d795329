"""How the drafts of one sequence fared lately, and how long its next one should be."""

import math
from dataclasses import dataclass

_PRIOR_TOKENS = 6.0
"""What all traffic's acceptance weighs against a sequence's own draft tokens."""
_KEPT_OF_THE_PAST = 0.95
"""With each round; also of one without a draft, so that nobody is judged for ever."""


@dataclass(slots=True)
class DraftRecord:
    """Counts of a sequence's draft tokens, old ones less and less. Written by the Scheduler."""

    tried: float = 0.0
    """Tokens whose forerunners were all kept."""
    kept: float = 0.0

    def note(self, num_drafted: int, num_kept: int) -> None:
        """A round in which a draft was allowed."""
        self.tried = _KEPT_OF_THE_PAST * self.tried + min(num_drafted, num_kept + 1)
        self.kept = _KEPT_OF_THE_PAST * self.kept + num_kept

    def draft_len(self, acceptance: float, break_even: float, longest: int) -> int:
        """Tokens that pay: those that are all kept with probability `break_even` or more, each
        being kept as often as this sequence's were, shrunk to `acceptance`."""
        rate = (self.kept + _PRIOR_TOKENS * acceptance) / (self.tried + _PRIOR_TOKENS)
        if rate >= 1.0 or break_even <= 0.0:
            return longest
        if rate <= 0.0 or break_even >= 1.0:
            return 0
        # A hair more, so that a length that was the basis of `break_even` is found again.
        return min(longest, int(math.log(break_even) / math.log(rate) + 1e-9))
