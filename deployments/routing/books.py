"""A router's books: what it has sent where, and where beginnings of texts were seen last."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from deployments.routing.view import SeenRequest

Replica = TypeVar("Replica", bound=Hashable)
USUAL_NEW_TOKENS = 128
"""Expected of an answer: its length is not known before its end, and HTTP's body is not seen."""
MOST_IMBALANCE = 2048
"""Tokens by which a replica may lie above the least loaded one, and still get what it has the
beginning of."""
MOST_DIGESTS = 65_536
"""Beginnings that are remembered: about 10 MB."""


@dataclass(slots=True)
class _Sent(Generic[Replica]):
    replica: Replica
    tokens: int


class RoutingBooks(Generic[Replica]):
    """Of one router, which knows what passes through it and nothing else. Ties go to whoever was
    chosen longest ago."""

    def __init__(
        self,
        *,
        follows_prefixes: bool = True,
        most_imbalance: int = MOST_IMBALANCE,
        most_digests: int = MOST_DIGESTS,
    ) -> None:
        self._follows_prefixes = follows_prefixes
        self._most_imbalance = most_imbalance
        self._most_digests = most_digests
        self._outstanding: dict[Replica, int] = {}
        self._sent: dict[str, _Sent[Replica]] = {}
        self._homes: OrderedDict[bytes, Replica] = OrderedDict()
        self._chosen: dict[Replica, int] = {}
        self._num_chosen = 0

    def choose(self, replicas: Sequence[Replica], request: SeenRequest) -> list[Replica]:
        """All of them, the best first: the one with the least tokens outstanding, those left out
        that it would find in its cache."""
        least = min((self.outstanding(replica) for replica in replicas), default=0)
        cached = self._cached(request)

        def rank(replica: Replica) -> tuple[int, int]:
            load = self.outstanding(replica)
            if load <= least + self._most_imbalance:
                load -= cached.get(replica, 0)
            return load, self._chosen.get(replica, 0)

        return sorted(replicas, key=rank)

    def send(self, request_id: str, replica: Replica, request: SeenRequest) -> None:
        """Write down that a request goes there; a second time, that it goes elsewhere."""
        self.end(request_id)
        expected = min(request.max_tokens or USUAL_NEW_TOKENS, USUAL_NEW_TOKENS)
        tokens = request.prompt_tokens - self._cached(request).get(replica, 0) + expected
        self._sent[request_id] = _Sent(replica, max(1, tokens))
        self._outstanding[replica] = self.outstanding(replica) + self._sent[request_id].tokens
        self._num_chosen += 1
        self._chosen[replica] = self._num_chosen
        for digest in request.digests if self._follows_prefixes else ():
            self._homes[digest] = replica
            self._homes.move_to_end(digest)
        while len(self._homes) > self._most_digests:
            self._homes.popitem(last=False)

    def end(self, request_id: str) -> None:
        """However it ended; harmless when it is not known."""
        sent = self._sent.pop(request_id, None)
        if sent is not None and sent.replica in self._outstanding:
            self._outstanding[sent.replica] -= sent.tokens

    def keep_only(self, replicas: Sequence[Replica]) -> None:
        """Forget the others."""
        alive = set(replicas)
        for replica in [replica for replica in self._outstanding if replica not in alive]:
            del self._outstanding[replica]
        self._chosen = {r: number for r, number in self._chosen.items() if r in alive}
        self._sent = {i: sent for i, sent in self._sent.items() if sent.replica in alive}
        for digest in [digest for digest, home in self._homes.items() if home not in alive]:
            del self._homes[digest]

    def outstanding(self, replica: Replica) -> int:
        """Tokens of its requests under way that came through here."""
        return self._outstanding.get(replica, 0)

    def _cached(self, request: SeenRequest) -> dict[Replica, int]:
        """Tokens of its beginning that a replica has computed: one replica, or none."""
        found = 0
        for digest in request.digests:
            if digest not in self._homes:
                break
            found += 1
        if not found:
            return {}
        home = self._homes[request.digests[found - 1]]
        return {home: min(request.prompt_tokens, found * request.tokens_per_digest)}
