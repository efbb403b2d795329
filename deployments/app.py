"""The Serve application: `serve run deployments.app:build`, `serve build deployments.app:app`."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import RootModel, model_validator
from ray import serve
from ray.serve.config import DeploymentActorConfig, RequestRouterConfig

from cluster.policy_client import POLICY_ACTOR
from deployments.arguments import parse_arguments
from deployments.autoscaling.decision import Targets
from deployments.autoscaling.policy import serve_autoscaling
from deployments.config import AppConfig
from deployments.failover.router import PacelineRouter
from deployments.logs import serves_logging
from deployments.replica import EngineReplica, PacelineReplica
from deployments.routing.router import LeastTokensRouter
from deployments.routing.two_choices import SteeredTwoChoices
from policy.actor import PolicyActor

DEPLOYMENT_NAME: Final = "paceline"
"""Of the replicas with an engine."""
ROUTER_NAME: Final = "paceline-router"
HEALTH_CHECK_PERIOD_S: Final = 2.0
MAX_POLICY_CALLS: Final = 10_000
"""Calls that wait in the policy actor at once: one long poll per replica, and some reports."""
ROUTING_STATS_PERIOD_S: Final = 2.0
"""How often a replica tells routers its tokens; a router knows at once of what it sent itself."""


class BuilderArguments(RootModel[AppConfig]):
    """What `serve run` and `serve deploy` pass: the configuration's keys, or `config`, its file.

    Raises ConfigError, which names the argument at fault.
    """

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, values: object) -> object:
        return parse_arguments(values) if isinstance(values, Mapping) else values


def build(arguments: BuilderArguments) -> serve.Application:
    """The application from a builder's arguments."""
    return build_application(arguments.root)


def build_application(config: AppConfig, max_constructor_retries: int = 3) -> serve.Application:
    """The application: replicas that are their own ingress, and their policy actor; with
    `resilient`, a router deployment before them."""
    replicas = config.replicas
    policy_actor: dict[str, Any] = {
        "configured": config.initial_policy.setting,
        "max_draft_len": config.max_draft_len,
    }
    ranks: dict[str, Any] = {}
    if config.engine.tp_size > 1:
        placement = config.rank_placement
        ranks = {
            "placement_group_bundles": [dict(bundle) for bundle in placement.bundles],
            "placement_group_strategy": placement.strategy,
        }
    deployment = serve.deployment(
        name=DEPLOYMENT_NAME,
        **_number_of_replicas(config),
        **_routing(config),
        ray_actor_options={"num_cpus": replicas.num_cpus, "num_gpus": replicas.num_gpus},
        max_ongoing_requests=config.max_ongoing_requests,
        # The proxy refuses nobody: a full engine does, at once, in the API's own words.
        max_queued_requests=-1,
        # With Serve's three failures in a row: a replica that stalls is replaced seconds later.
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        graceful_shutdown_timeout_s=replicas.graceful_shutdown_timeout_s,
        max_surge_percent=replicas.max_surge_percent,
        logging_config=serves_logging(config.logs),
        max_constructor_retry_count=max_constructor_retries,
        **ranks,
        deployment_actors=[
            DeploymentActorConfig(
                name=POLICY_ACTOR,
                actor_class=PolicyActor,
                init_kwargs=policy_actor,
                actor_options={"num_cpus": 0, "max_concurrency": MAX_POLICY_CALLS},
            )
        ],
    )(EngineReplica if config.resilient else PacelineReplica)
    application: serve.Application = deployment.bind(config)
    return (
        _routed(application, config, max_constructor_retries) if config.resilient else application
    )


def _routed(
    engines: serve.Application, config: AppConfig, max_constructor_retries: int
) -> serve.Application:
    """A router deployment before the engines."""
    deployment = serve.deployment(
        name=ROUTER_NAME,
        num_replicas=config.router.num_replicas,
        ray_actor_options={"num_cpus": config.router.num_cpus},
        max_ongoing_requests=config.max_routed_requests,
        max_queued_requests=-1,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        graceful_shutdown_timeout_s=config.replicas.graceful_shutdown_timeout_s,
        logging_config=serves_logging(config.logs),
        max_constructor_retry_count=max_constructor_retries,
    )(PacelineRouter)
    application: serve.Application = deployment.bind(config, engines)
    return application


def _number_of_replicas(config: AppConfig) -> dict[str, Any]:
    if config.autoscaling is None:
        return {"num_replicas": config.replicas.num_replicas}
    return {"autoscaling_config": serve_autoscaling(Targets(**config.autoscaling.model_dump()))}


def _routing(config: AppConfig) -> dict[str, Any]:
    least_tokens = config.replicas.routing == "least_tokens"
    if not least_tokens and not config.resilient:
        return {}  # Serve's own default
    return {
        "request_router_config": RequestRouterConfig(
            request_router_class=LeastTokensRouter if least_tokens else SteeredTwoChoices,  # type: ignore[arg-type]  # Serve's own, untyped
            request_routing_stats_period_s=ROUTING_STATS_PERIOD_S,  # type: ignore[arg-type]
        )
    }


app: Final = build_application(AppConfig())
"""The application as configured by default, for `serve build`."""
