"""The router's books for thousands of replicas: the same choice, without a look at each of them."""

import heapq
from collections.abc import Sequence

from deployments.routing.books import RoutingBooks
from deployments.routing.view import SeenRequest

_MOST_STALE = 8
"""Entries in the heap for each replica, before it is made anew."""


class RankedBooks(RoutingBooks[int]):
    """Keeps the replicas in a heap by tokens outstanding. `best` is what `choose` puts first, among
    the replicas that `keep_only` was told last; both are tested to agree."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, int] = {}
        self._heap: list[tuple[float, int, int, int]] = []
        """(tokens outstanding, when it was chosen last, place, replica); stale ones among them."""

    def best(self, request: SeenRequest) -> int | None:
        """None where there is no replica."""
        if not self._places:
            return None
        heap = self._heap
        while heap[0] != self._entry(heap[0][3]):
            heapq.heappop(heap)
        least, _, _, first = heap[0]
        for home, cached in self._cached(request).items():
            if home in self._places and self.outstanding(home) <= least + self._most_imbalance:
                load, *tie, _ = self._entry(home)
                if home == first or (load - self._prompt_share * cached, *tie) < heap[0][:3]:
                    return home
        return first

    def keep_only(self, replicas: Sequence[int]) -> None:
        super().keep_only(replicas)
        self._places = {replica: place for place, replica in enumerate(replicas)}
        self._make_heap()

    def send(self, request_id: str, replica: int, request: SeenRequest) -> None:
        super().send(request_id, replica, request)
        self._changed(replica)

    def end(self, request_id: str) -> None:
        replica = self.where(request_id)
        super().end(request_id)
        if replica is not None:
            self._changed(replica)

    def hear(self, replica: int, tokens: float) -> None:
        before = self.outstanding(replica)
        super().hear(replica, tokens)
        if self.outstanding(replica) != before:
            self._changed(replica)

    def _entry(self, replica: int) -> tuple[float, int, int, int]:
        chosen = self._chosen.get(replica, 0)
        return self.outstanding(replica), chosen, self._places.get(replica, -1), replica

    def _changed(self, replica: int) -> None:
        if replica not in self._places:
            return
        heapq.heappush(self._heap, self._entry(replica))
        if len(self._heap) > _MOST_STALE * len(self._places):
            self._make_heap()

    def _make_heap(self) -> None:
        self._heap = [self._entry(replica) for replica in self._places]
        heapq.heapify(self._heap)
