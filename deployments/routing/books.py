"""A router's books: what it has sent where, and where beginnings of texts were seen last."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from deployments.routing.view import SeenRequest

Replica = TypeVar("Replica", bound=Hashable)
OUTSTANDING = "outstanding_tokens"
"""The name under which a replica tells them to routers."""
USUAL_NEW_TOKENS = 128
"""Expected of an answer: its length is not known before its end, and HTTP's body is not seen."""
PROMPT_SHARE = 0.25
"""Of a new token's weight, a prompt token's: it is computed with many others in one pass, and long
before the answer ends."""
MOST_IMBALANCE = 1024
"""Tokens by which a replica may lie above the least loaded one, and still get what it has the
beginning of."""
MOST_DIGESTS = 65_536
"""Beginnings that are remembered: about 10 MB."""


@dataclass(slots=True)
class _Sent(Generic[Replica]):
    replica: Replica
    tokens: float


class RoutingBooks(Generic[Replica]):
    """Of one router. What passes through it it knows at once; what came to a replica by others, as
    the replica says now and then. Ties go to whoever was chosen longest ago."""

    def __init__(
        self,
        *,
        prompt_share: float = PROMPT_SHARE,
        most_imbalance: float = MOST_IMBALANCE,
        most_digests: int = MOST_DIGESTS,
    ) -> None:
        self._prompt_share = prompt_share
        self._most_imbalance = most_imbalance
        self._most_digests = most_digests
        self._outstanding: dict[Replica, float] = {}
        self._others: dict[Replica, float] = {}
        self._sent: dict[str, _Sent[Replica]] = {}
        self._homes: OrderedDict[bytes, Replica] = OrderedDict()
        self._chosen: dict[Replica, int] = {}
        self._num_chosen = 0

    def choose(self, replicas: Sequence[Replica], request: SeenRequest) -> list[Replica]:
        """All of them, the best first: the one with the least tokens outstanding, those left out
        that it would find in its cache."""
        least = min((self.outstanding(replica) for replica in replicas), default=0)
        cached = self._cached(request)

        def rank(replica: Replica) -> tuple[float, int]:
            load = self.outstanding(replica)
            if load <= least + self._most_imbalance:
                load -= self._prompt_share * cached.get(replica, 0)
            return load, self._chosen.get(replica, 0)

        return sorted(replicas, key=rank)

    def send(self, request_id: str, replica: Replica, request: SeenRequest) -> None:
        """Write down that a request goes there; a second time, that it goes elsewhere."""
        self.end(request_id)
        expected = min(request.max_tokens or USUAL_NEW_TOKENS, USUAL_NEW_TOKENS)
        to_compute = request.prompt_tokens - self._cached(request).get(replica, 0)
        tokens = self._prompt_share * to_compute + expected
        self._sent[request_id] = _Sent(replica, tokens)
        self._outstanding[replica] = self._outstanding.get(replica, 0.0) + tokens
        self._num_chosen += 1
        self._chosen[replica] = self._num_chosen
        for digest in request.digests:
            self._homes[digest] = replica
            self._homes.move_to_end(digest)
        while len(self._homes) > self._most_digests:
            self._homes.popitem(last=False)

    def where(self, request_id: str) -> Replica | None:
        """The replica that a request under way was sent to."""
        sent = self._sent.get(request_id)
        return None if sent is None else sent.replica

    def end(self, request_id: str) -> None:
        """However it ended; harmless when it is not known."""
        sent = self._sent.pop(request_id, None)
        if sent is not None and sent.replica in self._outstanding:
            self._outstanding[sent.replica] -= sent.tokens

    def hear(self, replica: Replica, tokens: float) -> None:
        """What a replica says that it has outstanding: what is more than we sent came by others."""
        self._others[replica] = max(0.0, tokens - self._outstanding.get(replica, 0.0))

    def keep_only(self, replicas: Sequence[Replica]) -> None:
        """Forget the others."""
        alive = set(replicas)
        for tokens in (self._outstanding, self._others):
            for replica in [replica for replica in tokens if replica not in alive]:
                del tokens[replica]
        self._chosen = {r: number for r, number in self._chosen.items() if r in alive}
        self._sent = {i: sent for i, sent in self._sent.items() if sent.replica in alive}
        for digest in [digest for digest, home in self._homes.items() if home not in alive]:
            del self._homes[digest]

    def outstanding(self, replica: Replica) -> float:
        """Tokens of its requests under way, those of prompts by their share."""
        return self._outstanding.get(replica, 0.0) + self._others.get(replica, 0.0)

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
