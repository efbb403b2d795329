"""Starts Ray, Serve and the application for one foreground process, and stops what it started."""

import logging
import os
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cluster.placement import require_room
from deployments.config import AppConfig
from deployments.reach import http_answers, require_ray
from engine.errors import ConfigError, PacelineError

if TYPE_CHECKING:
    from ray.serve.schema import ApplicationStatusOverview

APP_NAME: Final = "paceline"
OBJECT_STORE_BYTES: Final = 120 * 2**20
"""Enough for requests and tables; weights never pass through the object store."""
_DRAIN_POLL_S: Final = 0.2

_ENVIRONMENT: Final = {
    # Serve's proxy tells each request's id once, and a sane one; it refuses in the API's own words.
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deployments.proxy_answers:around_proxy",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A policy actor that died is noticed at the next check; ten seconds is long for a person.
    "RAY_SERVE_DEPLOYMENT_ACTOR_HEALTH_CHECK_PERIOD_S": "3",
    # An engine that is dead or has stalled finishes nothing: its clients are not to wait for it.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    # A proxy is replaced after three failed checks, ten seconds apart by default; until then nobody
    # gets a connection.
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2",
    # What autoscaling decides by; Serve's own period is ten seconds.
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "2",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "2",
    # How old a metric may be; Ray's own period is ten seconds.
    "RAY_metrics_report_interval_ms": "5000",
    # From replica to proxy over the gRPC server that each replica has anyway. The other way, each
    # chunk of a stream becomes an object of Ray's, which costs both processes several times as
    # much.
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    # The engine has a thread of its own, and nothing else in a replica or proxy takes long: another
    # thread for the application and one for the router only make each message change hands.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}
_SPIN_COUNT: Final = "GOMP_SPINCOUNT"
_WAIT_POLICY: Final = "OMP_WAIT_POLICY"
_SHORT_SPIN: Final = "30000"
"""OpenMP's threads spin while they wait for each other, by default longer than a time slice: when
any other process needs one of the cores, most of a step goes by with waiting. A few tenths of a
millisecond are still more than lies between two of the hundreds of waits in a step: asleep, a
thread would be woken too late each time."""


class StartFailed(ConfigError):
    """The application did not come up; the message holds the root cause in one line."""


@dataclass(frozen=True, slots=True)
class LaunchState:
    stage: str
    ready: bool = False


def set_environment(environment: MutableMapping[str, str]) -> None:
    """What Ray and the replicas that it starts are to inherit, where the user set nothing."""
    for name, value in _ENVIRONMENT.items():
        environment.setdefault(name, value)
    if not {_WAIT_POLICY, _SPIN_COUNT} & environment.keys():
        environment[_SPIN_COUNT] = _SHORT_SPIN
        # With more threads than cores they would all but not spin at all otherwise.
        environment[_WAIT_POLICY] = "ACTIVE"


class Launcher:
    """One application, from nothing to ready and back. `address` joins a Ray cluster instead."""

    def __init__(self, config: AppConfig, address: str | None, metrics_port: int = 0) -> None:
        """`metrics_port`: where a Ray of our own exports metrics; 0: any."""
        self._config = config
        self._address = address
        self._metrics_port = metrics_port
        self._ray_started = False
        self._deployed = False

    @property
    def address(self) -> str | None:
        """Of the cluster that was joined; None for a Ray of our own."""
        return self._address

    @property
    def has_any_metrics_port(self) -> bool:
        """Whether a Ray of our own chose the port of the metrics."""
        return self._address is None and not self._metrics_port

    def start_ray(self) -> None:
        """Start a Ray of our own (seconds), or connect to a cluster. Raises ConfigError."""
        set_environment(os.environ)
        if self._address is not None:
            require_ray(self._address)
        import ray

        options: dict[str, Any] = {"address": self._address}
        if self._address is None:
            options = {
                "address": "local",
                "include_dashboard": False,
                "_metrics_export_port": self._metrics_port,
                "object_store_memory": OBJECT_STORE_BYTES,
            }
        try:
            ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
        except Exception as error:
            raise StartFailed(f"Ray did not start: {last_line(str(error))}") from error
        self._ray_started = True
        if self._address is None:
            # In a cluster of others, more machines may come; here what is missing stays missing.
            self._require_resources(ray.cluster_resources())  # type: ignore[no-untyped-call]
        if self._config.engine.tp_size > 1:
            nodes = ray.nodes()  # type: ignore[no-untyped-call]
            resources = [node["Resources"] for node in nodes if node["Alive"]]
            replicas = self._config.most_replicas
            require_room(self._config.rank_placement, resources, replicas)

    def metric_addresses(self) -> list[str]:
        """host:port of each machine's metrics; none where Ray can't be asked."""
        from cluster.metrics.targets import metric_addresses

        with suppress(Exception):
            return metric_addresses()
        return []

    def start_serve(self) -> None:
        """Start Serve's controller and HTTP proxy."""
        from ray import serve
        from ray.serve.config import HTTPOptions

        from deployments.logs import serves_logging

        # The driver's own log lines; those of Serve's actors go to files.
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        server = self._config.server
        serve.start(
            proxy_location="HeadOnly",
            http_options=HTTPOptions(host=server.host, port=server.port),
            logging_config=serves_logging(self._config.logs, "warning"),
        )

    def deploy(self) -> None:
        """Ask Serve for the application; `state` tells how it comes along.

        Raises ConfigError when the cluster runs one of that name, which is somebody's.
        """
        from ray import serve

        from deployments.app import build_application

        if self.application() is not None:
            raise ConfigError(
                f"--address: an application named {APP_NAME!r} runs there already; delete it "
                "first, or change it with `serve deploy`"
            )
        self._deployed = True
        application = build_application(self._config, max_constructor_retries=1)
        serve.run_many(
            [serve.RunTarget(application, APP_NAME, "/")],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )

    def state(self) -> LaunchState:
        """What the application is doing. Raises StartFailed once Serve has given up on it."""
        from ray import serve
        from ray.serve.schema import ApplicationStatus

        application = serve.status().applications.get(APP_NAME)
        if application is None:
            return LaunchState("deploying")
        if application.status == ApplicationStatus.RUNNING:
            return LaunchState("ready", ready=True)
        stages = self._replica_stages()
        if application.status == ApplicationStatus.DEPLOY_FAILED:
            failed = [stage for stage in stages if stage.startswith("failed: ")]
            messages = [deployment.message for deployment in application.deployments.values()]
            cause = (
                failed[0].removeprefix("failed: ")
                if failed
                else last_line("\n".join([application.message, *messages]))
            )
            raise StartFailed(cause)
        loading = [stage for stage in stages if not stage.startswith(("ready", "failed: "))]
        if loading:
            return LaunchState(loading[0])
        return LaunchState("waiting for Serve" if stages else "starting the replica")

    def application(self) -> "ApplicationStatusOverview | None":
        """What Serve says of the application, if it has it. PacelineError: Ray is gone."""
        from ray import serve

        try:
            return serve.status().applications.get(APP_NAME)
        except Exception as error:
            raise PacelineError(f"Ray is gone: {last_line(str(error))}") from error

    def trouble(self) -> str | None:
        """What is wrong with the running application, in a line. PacelineError: Ray is gone."""
        from ray.serve.schema import ApplicationStatus

        application = self.application()
        if application is None:
            return "the application was deleted"
        # Serve notices only after many seconds that its proxy has died. In a cluster of others
        # the proxy may be on another machine.
        if self._address is None and not http_answers(self._config.server):
            server = self._config.server
            return f"the HTTP endpoint ({server.host}, port {server.port}) does not answer"
        if application.status == ApplicationStatus.RUNNING:
            return None
        messages = [deployment.message for deployment in application.deployments.values()]
        return last_line("\n".join([application.status, application.message, *messages]))

    def drain(self) -> None:
        """Take the application down once its requests in flight have ended."""
        from ray import serve

        with suppress(Exception):
            # First the application alone: a shutdown of all would end the proxy at once, and with
            # it every answer on its way. Serve's own waiting gives up after a minute.
            serve.delete(APP_NAME, _blocking=False)
            while self.application() is not None:
                time.sleep(_DRAIN_POLL_S)
            if self._address is None:
                serve.shutdown()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Stop all that was started, at once. In a cluster of others: the application alone."""
        if not self._ray_started:
            return
        import ray
        from ray import serve

        if self._address is not None and self._deployed:
            with suppress(Exception):
                serve.delete(APP_NAME, _blocking=False)
        ray.shutdown()
        self._ray_started = False

    def _require_resources(self, available: Mapping[str, float]) -> None:
        """Raise ConfigError for replicas that Ray could never place, instead of waiting for it."""
        replicas = self._config.replicas
        number = "num_replicas" if self._config.autoscaling is None else "autoscaling.max_replicas"
        for resource, each in (("CPU", replicas.num_cpus), ("GPU", replicas.num_gpus)):
            reserved = each * self._config.most_replicas * self._config.engine.tp_size
            if reserved > available.get(resource, 0.0):
                raise ConfigError(
                    f"replicas: {reserved / each:g} x {each:g} {resource}s are reserved "
                    f"({number}, engine.tp_size, num_{resource.lower()}s); this machine has "
                    f"{available.get(resource, 0.0):g}"
                )
        if not self._config.resilient:
            return
        router = self._config.router
        cpus = replicas.num_cpus * self._config.most_replicas * self._config.engine.tp_size
        routers = router.num_cpus * router.num_replicas
        if cpus + routers > available.get("CPU", 0.0):
            raise ConfigError(
                f"router: {router.num_replicas} x {router.num_cpus:g} CPUs are reserved beside the "
                f"{cpus:g} of the replicas (num_replicas, num_cpus); this machine has "
                f"{available.get('CPU', 0.0):g}"
            )

    def _replica_stages(self) -> list[str]:
        from cluster.policy_client import describe_from_outside
        from deployments.app import DEPLOYMENT_NAME

        described = describe_from_outside(APP_NAME, DEPLOYMENT_NAME)
        replicas = described["replicas"] if described else []
        return [replica["stage"] for replica in replicas if replica["stage"]]


def last_line(text: str) -> str:
    """The last line with something in it: of a traceback, the error itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "unknown reason"
