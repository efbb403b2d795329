"""The power of two choices for calls that may be steered, which Serve's own router knows nothing
of: it hands a replica to whichever request waits longest, not to the one that it was chosen for."""

import random

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from deployments.routing.steering import wanted


class SteeredTwoChoices(RequestRouter):
    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Two of those that are wanted; Serve takes the one with fewer requests."""
        args = [] if pending_request is None else pending_request.args
        found = wanted(candidate_replicas, args)
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True
        return [random.sample(found, min(2, len(found)))] if found else []
