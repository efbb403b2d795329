"""How much comes in a second: over a minute, and lately, told fast of a step and not fooled by a
burst.

Buckets begin at multiples of `BUCKET_S` on everybody's clock: when requests go to another replica
than before, what both say adds up to what comes.
"""

from collections import deque

BUCKET_S = 3.0
_RECENT = 5
_ALL = 20


class Arrivals:
    """Amounts that arrive, by time. The bucket that is being filled doesn't count."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, float]] = deque()
        """(number of the bucket, sum), those with something."""

    def add(self, now_s: float, amount: float) -> None:
        number = int(now_s // BUCKET_S)
        if self._buckets and self._buckets[-1][0] >= number:
            last, total = self._buckets.pop()
            self._buckets.append((last, total + amount))
        else:
            self._buckets.append((number, amount))
        self._forget(number)

    def mean(self, now_s: float) -> float:
        """A second, over the last minute."""
        number = int(now_s // BUCKET_S)
        self._forget(number)
        whole = sum(total for n, total in self._buckets if n < number)
        return whole / (_ALL * BUCKET_S)

    def recent(self, now_s: float) -> float:
        """A second, by the last buckets' second least. A step fills all but one within seconds, a
        burst one or two, and chance alone seldom as many; where little comes it is 0."""
        number = int(now_s // BUCKET_S)
        totals = dict(self._buckets)
        last = [totals.get(number - back, 0.0) for back in range(1, _RECENT + 1)]
        return sorted(last)[1] / BUCKET_S

    def _forget(self, number: int) -> None:
        while self._buckets and self._buckets[0][0] < number - _ALL:
            self._buckets.popleft()
