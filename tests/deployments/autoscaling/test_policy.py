"""The policy as Ray Serve calls it."""

from dataclasses import replace
from typing import Any

import pytest
from ray.serve._private.common import DeploymentID, ReplicaID, TimeStampedValue
from ray.serve.autoscaling_policy import _apply_autoscaling_config
from ray.serve.config import AutoscalingContext

from deployments.app import build_application
from deployments.autoscaling.decision import Targets
from deployments.autoscaling.load import ReplicaLoad
from deployments.autoscaling.policy import PacelineScaling, observe, serve_autoscaling
from deployments.config import parse_config
from tests.deployments.autoscaling.test_decision import BUSY

TARGETS = Targets(min_replicas=0, max_replicas=4, target_tpot_ms=50.0)
FIRST, SECOND = (ReplicaID(name, DeploymentID("paceline", "app")) for name in ("a", "b"))


def context(
    loads: dict[ReplicaID, ReplicaLoad],
    *,
    now_s: float = 100.0,
    told_s: float = 99.0,
    state: dict[str, Any] | None = None,
    target: int = 1,
    running: tuple[ReplicaID, ...] = (FIRST,),
    requests: float = 0.0,
) -> AutoscalingContext:
    metrics: dict[str, dict[ReplicaID, list[TimeStampedValue]]] = {}
    for replica, load in loads.items():
        for name, value in load.as_stats().items():
            series = [TimeStampedValue(told_s - 2, 7.0), TimeStampedValue(told_s, value)]
            metrics.setdefault(name, {})[replica] = series
    return AutoscalingContext(
        deployment_id=FIRST.deployment_id,
        deployment_name="paceline",
        app_name="app",
        current_num_replicas=len(running),
        target_num_replicas=target,
        running_replicas=list(running),
        total_num_requests=requests,
        total_queued_requests=requests,
        aggregated_metrics=None,
        raw_metrics=lambda: metrics,
        capacity_adjusted_min_replicas=0,
        capacity_adjusted_max_replicas=4,
        policy_state=state or {},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=now_s,
        config=serve_autoscaling(TARGETS),
    )


def serves_call() -> Any:
    """The policy as Serve makes it from the deployment's options, with all that Serve adds."""
    policy = serve_autoscaling(TARGETS).policy
    return _apply_autoscaling_config(policy.get_policy()(**policy.policy_kwargs))


def test_the_last_report_is_read() -> None:
    seen = observe(context({FIRST: BUSY}, running=(FIRST, SECOND)))
    assert [replica.load for replica in seen.replicas] == [BUSY, None]
    assert seen.replicas[0].age_s == pytest.approx(1.0)


def test_numbers_of_an_older_report_are_left_out() -> None:
    told = context({FIRST: BUSY})
    stale = [TimeStampedValue(50.0, 0.5)]
    metrics = told.raw_metrics
    assert metrics is not None
    metrics["seconds_per_token_at_64"] = {FIRST: stale}
    assert observe(told).replicas[0].load == BUSY


def test_a_report_that_cannot_be_is_none() -> None:
    told = context({FIRST: BUSY})
    metrics = told.raw_metrics
    assert metrics is not None
    metrics["kv_use"][FIRST][-1] = TimeStampedValue(99.0, float("nan"))
    assert observe(told).replicas[0].load is None


def test_more_replicas_go_through_serve_as_they_were_decided() -> None:
    call = serves_call()
    heavy = replace(BUSY, new_tokens_per_s=600.0)
    number, state = call(context({FIRST: heavy}))
    assert number == 1
    number, state = call(context({FIRST: heavy}, now_s=103.0, told_s=102.0, state=state))
    assert number == 3


def test_serve_starts_one_for_a_request_that_waits_without_any() -> None:
    assert serves_call()(context({}, running=(), target=0, requests=1.0))[0] == 1
    assert serves_call()(context({}, running=(), target=0))[0] == 0


def test_an_error_keeps_the_number(caplog: pytest.LogCaptureFixture) -> None:
    broken = context({FIRST: BUSY}, target=2)
    broken.running_replicas = None  # type: ignore[assignment]
    assert PacelineScaling(max_replicas=4)(broken) == (2, {})
    assert "could not be decided" in caplog.text


def test_the_first_replica_is_always_started() -> None:
    assert serve_autoscaling(TARGETS).initial_replicas == 1
    assert serve_autoscaling(replace(TARGETS, min_replicas=2)).initial_replicas == 2


def test_it_is_the_policy_of_an_application_that_asks_for_it() -> None:
    def options_of(**values: Any) -> Any:
        app = build_application(parse_config({"model": "x", **values}, "args"))
        return app._bound_deployment._deployment_config

    scaled = options_of(autoscaling={"max_replicas": 3, "target_tpot_ms": 40.0}).autoscaling_config
    assert (scaled.min_replicas, scaled.max_replicas) == (1, 3)
    assert scaled.policy.policy_kwargs["target_tpot_ms"] == 40.0
    assert scaled.policy.get_policy().__name__ == "PacelineScaling"
    assert options_of(replicas={"num_replicas": 2}).autoscaling_config is None
