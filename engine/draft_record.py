"""How the drafts of one sequence fared lately, and how long its next one should be."""

import math
from dataclasses import dataclass

_PRIOR_TOKENS = 6.0
"""What all traffic's acceptance weighs against a sequence's own draft tokens."""
_KEPT_OF_THE_PAST = 0.95
"""With each round; also of one without a draft, so that nobody is judged for ever."""

_CERTAIN_Z = 2.5
"""Standard deviations that a sequence's own rate must be off for it to be treated otherwise."""


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
        being kept as often as this sequence's were, as far as that is certain, else as
        `acceptance` says."""
        weight = self.tried + _PRIOR_TOKENS
        own = (self.kept + _PRIOR_TOKENS * acceptance) / weight
        # Lengths follow luck too where nothing sets the sequences apart, and luck goes wrong on
        # both sides: of what its own drafts make likely, the rate that is nearest to all traffic's.
        reach = _CERTAIN_Z * math.sqrt(max(0.0, own * (1.0 - own)) / weight)
        rate = min(own + reach, max(own - reach, acceptance))
        if rate >= 1.0 or break_even <= 0.0:
            return longest
        if rate <= 0.0 or break_even >= 1.0:
            return 0
        # A hair more, so that a length that was the basis of `break_even` is found again.
        return min(longest, int(math.log(break_even) / math.log(rate) + 1e-9))
