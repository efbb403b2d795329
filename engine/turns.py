"""Whose turn it is: a line of waiting sequences for each tenant, and what each has been served.

Among equal priorities the tenant with the least service goes first: virtual token counters (Sheng
et al. 2024, "Fairness in Serving Large Language Models", arXiv 2401.00588, algorithm 2). A tenant
that comes back is lifted to the least of those that wait, so nobody saves up service while idle.
With a single tenant the order is that of rank, as if there were no lines.
"""

from bisect import insort
from operator import attrgetter

from engine.sequence import Sequence

PROMPT_WEIGHT = 1
OUTPUT_WEIGHT = 2
"""What a token counts, as in the paper: one of the output takes a pass of its own."""

_RANK = attrgetter("rank")


class Lines:
    """Written by `Queues` (who waits) and by the Scheduler (what was served)."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Sequence]] = {}
        """Of tenants that wait, each line in order of rank and never empty."""
        self._served: dict[str, int] = {}
        self._last_gone = ""
        """The tenant whose line was the last to become empty."""
        self.are_counted = False
        """Whether any tenant has a name: without one nobody needs to know what was served."""

    def join(self, seq: Sequence) -> None:
        tenant = seq.request.tenant
        line = self._waiting.get(tenant)
        if line is None:
            self.are_counted = self.are_counted or tenant != ""
            if self.are_counted:
                self._lift(tenant)
            line = self._waiting[tenant] = []
        insort(line, seq, key=_RANK)

    def leave(self, seq: Sequence) -> None:
        tenant = seq.request.tenant
        line = self._waiting[tenant]
        line.remove(seq)
        if not line:
            del self._waiting[tenant]
            self._last_gone = tenant

    def charge_prompt(self, seq: Sequence, num_computed: int) -> None:
        """A sequence was admitted, and so many tokens of its prompt are to be computed."""
        if self.are_counted:
            self._charge(seq.request.tenant, PROMPT_WEIGHT * num_computed)

    def charge_output(self, seq: Sequence, num_new: int) -> None:
        self._charge(seq.request.tenant, OUTPUT_WEIGHT * num_new)

    def served(self, tenant: str) -> int:
        """Weighted tokens, lifted ones included."""
        return self._served.get(tenant, 0)

    def turns(self) -> "Turns":
        return Turns(self._waiting, self._served)

    def check_integrity(self, waiting: list[Sequence]) -> None:
        """Assert that the lines hold those that wait, and nobody else."""
        assert sorted((seq for line in self._waiting.values() for seq in line), key=_RANK) == (
            waiting
        )
        for tenant, line in self._waiting.items():
            assert line == sorted(line, key=_RANK)
            assert line
            assert all(seq.request.tenant == tenant for seq in line)

    def _charge(self, tenant: str, tokens: int) -> None:
        self._served[tenant] = self._served.get(tenant, 0) + tokens

    def _lift(self, tenant: str) -> None:
        others = self._waiting or (self._last_gone,)
        least = min(self._served.get(other, 0) for other in others)
        self._served[tenant] = max(self._served.get(tenant, 0), least)


class Turns:
    """One walk over those that wait. Whoever is admitted leaves its line, whoever can't be yet is
    passed over."""

    def __init__(self, waiting: dict[str, list[Sequence]], served: dict[str, int]) -> None:
        self._waiting = waiting
        self._served = served
        self._num_passed: dict[str, int] = {}

    def next(self) -> Sequence | None:
        """The next one to be admitted; None at the end."""
        best, best_key = None, None
        for tenant, line in self._waiting.items():
            index = self._num_passed.get(tenant, 0)
            if index == len(line):
                continue
            seq = line[index]
            key = (seq.request.priority, self._served.get(tenant, 0), seq.arrival)
            if best_key is None or key < best_key:
                best, best_key = seq, key
        return best

    def pass_over(self, seq: Sequence) -> None:
        tenant = seq.request.tenant
        self._num_passed[tenant] = self._num_passed.get(tenant, 0) + 1
