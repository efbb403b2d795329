"""The books' place in Ray Serve: the router of each handle, those of its HTTP proxy included."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ray.serve.request_router import (
    PendingRequest,
    ReplicaID,
    RequestRouter,
    RunningReplica,
)

from deployments.routing.books import OUTSTANDING, RoutingBooks
from deployments.routing.steering import wanted
from deployments.routing.view import SeenRequest, see


class LeastTokensRouter(RequestRouter):
    """Sends a request to the replica with the least tokens outstanding, but for those that it has
    cached. A request is written down when it is chosen for: of many that come at once, each is told
    of those before it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._books: RoutingBooks[ReplicaID] = RoutingBooks()
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of `choose_replicas`, which the books belong to."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Ranks of one replica each, the best first: Serve takes the first that has room."""
        self._loop = asyncio.get_running_loop()
        if pending_request is None:
            return [list(candidate_replicas)]
        # When none has room Serve waits before it asks again; otherwise it would ask at once.
        pending_request.routing_context.should_backoff = True
        found = wanted(candidate_replicas, pending_request.args)
        by_id = {replica.replica_id: replica for replica in found}
        seen = _seen(pending_request)
        ranked = self._books.choose(list(by_id), seen)
        if ranked and not pending_request.future.done():
            self._books.send(pending_request.metadata.internal_request_id, ranked[0], seen)
            pending_request.future.add_done_callback(self._forgetting(pending_request))
        return [[by_id[replica_id]] for replica_id in ranked]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: object
    ) -> None:
        """It may have gone to another one than the best. It may also have ended already: Serve
        tells of the end from another thread, and of this when the replica has accepted it."""
        request_id = pending_request.metadata.internal_request_id
        if self._books.where(request_id) not in (None, replica_id):
            self._books.send(request_id, replica_id, _seen(pending_request))

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed, and the handle with it
                self._loop.call_soon_threadsafe(self._books.end, internal_request_id)

    def update_replicas(self, replicas: Sequence[RunningReplica]) -> None:
        super().update_replicas(list(replicas))
        self._books.keep_only([replica.replica_id for replica in replicas])
        for replica in replicas:
            tokens = replica.routing_stats.get(OUTSTANDING)
            if isinstance(tokens, int | float):
                self._books.hear(replica.replica_id, tokens)

    def _forgetting(self, pending_request: PendingRequest) -> Any:
        request_id = pending_request.metadata.internal_request_id

        def forget(future: "asyncio.Future[Any]") -> None:
            if future.cancelled():
                self._books.end(request_id)

        return forget


def _seen(pending_request: PendingRequest) -> SeenRequest:
    return see(pending_request.args, pending_request.metadata.session_id)
