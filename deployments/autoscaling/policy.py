"""The decision's place in Ray Serve: a policy that its controller asks several times a second.

Serve carries numbers by name from each replica, and keeps what the policy remembers for it until
the controller restarts or the application is deployed anew. It knows no torch: the controller
imports this.
"""

import logging
from typing import Any, Final

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from deployments.autoscaling.decision import Memory, Observation, SeenReplica, Targets, decide
from deployments.autoscaling.load import ReplicaLoad

logger = logging.getLogger("ray.serve")

LOOK_BACK_S: Final = 11.0
"""Serve asks a replica every fifth of it, and wants more than 10."""
_MEMORY: Final = "paceline"
_PRESENT: Final = "num_requests"
"""A number that every report has."""


class PacelineScaling:
    """Called with what Serve knows; answers how many replicas there are to be."""

    def __init__(self, **targets: Any) -> None:
        """The fields of `Targets`."""
        self._targets = Targets(**targets)

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """Never raises: an error here would stop Serve's control of the application."""
        try:
            remembered = context.policy_state.get(_MEMORY)
            memory = remembered if isinstance(remembered, Memory) else Memory()
            verdict = decide(observe(context), self._targets, memory)
        except Exception:
            logger.exception("the number of replicas stays: it could not be decided")
            return context.target_num_replicas, {}
        if verdict.num_replicas != context.target_num_replicas:
            logger.info("replicas %s", verdict.reason)
        return verdict.num_replicas, {_MEMORY: verdict.memory}


def observe(context: AutoscalingContext) -> Observation:
    """What the decision needs of it."""
    now_s = context.current_time or 0.0
    metrics = context.raw_metrics or {}
    return Observation(
        now_s=now_s,
        num_target=context.target_num_replicas,
        replicas=[_seen(replica, metrics, now_s) for replica in context.running_replicas],
        num_queued=context.total_queued_requests or 0.0,
    )


def _seen(replica: Any, metrics: dict[str, dict[Any, Any]], now_s: float) -> SeenReplica:
    told = metrics.get(_PRESENT, {}).get(replica)
    if not told:
        return SeenReplica(None)
    at_s = told[-1].timestamp
    # A number of an older report is none of this one: tables have fewer entries at times.
    stats = {
        name: series[replica][-1].value
        for name, series in metrics.items()
        if series.get(replica) and series[replica][-1].timestamp >= at_s
    }
    try:
        load = ReplicaLoad.from_stats(stats)
    except (ValueError, TypeError, OverflowError):
        return SeenReplica(None)
    return SeenReplica(load, max(0.0, now_s - at_s))


def serve_autoscaling(targets: Targets) -> AutoscalingConfig:
    """For a deployment. Serve adds no delays or factors of its own to what is decided here."""
    return AutoscalingConfig(
        min_replicas=targets.min_replicas,
        max_replicas=targets.max_replicas,
        # With min_replicas 0 too the first one is started, so that a model that can't be loaded is
        # told when the application starts.
        initial_replicas=max(1, targets.min_replicas),
        look_back_period_s=LOOK_BACK_S,
        upscale_delay_s=0.0,
        downscale_delay_s=0.0,
        policy=AutoscalingPolicy(  # type: ignore[no-untyped-call]  # Serve's own, untyped
            policy_function=PacelineScaling,
            policy_kwargs={name: getattr(targets, name) for name in Targets.__slots__},
        ),
    )
