"""`paceline serve`: the whole application in the foreground, until Ctrl-C."""

import json
import os
import shlex
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deployments.commands.terminal import INTERRUPTED
from engine.errors import ConfigError

if TYPE_CHECKING:
    from deployments.commands.loading import LoadingProgress
    from deployments.config import AppConfig
    from deployments.launcher import Launcher
    from deployments.stop_signals import StopSignals
    from policy.choice import PolicyChoice

ALIVE_S = 5.0
"""A Ray that does not answer within this has ended."""
TEAR_DOWN_S = 15.0
"""What Serve needs to stop its own actors once replicas have drained."""


def serve(
    config_file: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.yaml", help="Settings; without it, the defaults."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to listen on [default: 8000].")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on [default: 127.0.0.1].")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="A running Ray cluster to deploy to."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port for Prometheus [default: 8080, or any if it is taken]."
        ),
    ] = None,
) -> None:
    """Serve a model over an OpenAI-compatible API. Ctrl-C stops it.

    examples/config.yaml explains every setting.
    """
    from deployments.api_keys import KEYS_VARIABLE, KeyRing
    from deployments.config import AppConfig, load_config
    from deployments.launcher import Launcher
    from deployments.live_settings import LiveSettings
    from deployments.ports import free_metrics_port, require_free_port

    if address == "local":  # Ray's word for a cluster of one's own
        address = None
    config = AppConfig() if config_file is None else load_config(config_file)
    changes = {"port": port, "host": host}
    server = config.server.model_copy(update={k: v for k, v in changes.items() if v is not None})
    config = config.model_copy(update={"server": server})
    if address is None:
        require_free_port(server)
        # What replicas would find wrong, said before anything is started for them.
        KeyRing(LiveSettings().keys_path(config), os.environ)
        metrics_port = free_metrics_port(metrics_port)
    elif metrics_port is not None:
        raise ConfigError(
            f"--metrics-port: the cluster of --address exports its own metrics, got {metrics_port}"
        )
    elif KEYS_VARIABLE in os.environ:
        # Replicas don't inherit it from here: they would serve everybody.
        raise ConfigError(
            f"{KEYS_VARIABLE} is read where the replicas run, not here; with --address name a file "
            "in server.api_keys_file, or set the variable on the cluster's machines and unset it "
            "here"
        )
    config = config.with_models_found()
    raise typer.Exit(_run(config, Launcher(config, address, metrics_port or 0)))


def _run(config: "AppConfig", launcher: "Launcher") -> int:
    """Start, tell, wait, stop; the exit code."""
    from deployments.commands.loading import LoadingProgress
    from deployments.stop_signals import StopSignals

    progress = LoadingProgress()
    signals = StopSignals(
        lambda count: progress.say(
            "Stopping; requests in flight may finish. Ctrl-C again stops them."
            if count == 1
            else "Stopping now."
        )
    )
    signals.listen()
    # Ray prints what befalls its processes to standard output; what matters, we tell ourselves.
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            with progress.shown():
                ready = _start(launcher, signals, progress)
            if ready:
                progress.say(_ready_lines(config, progress.elapsed_s, launcher.address))
                metrics = launcher.metric_addresses()
                progress.say(metrics_line(metrics, launcher.has_any_metrics_port))
                _watch(launcher, signals, progress)
                _drain(config, launcher, signals)
            return 0 if ready else INTERRUPTED
        except SystemExit:
            # SIGTERM while Ray was starting: Ray's own handler ends the process this way.
            return INTERRUPTED
        finally:
            launcher.stop()


def _start(launcher: "Launcher", signals: "StopSignals", progress: "LoadingProgress") -> bool:
    """Bring everything up; False when a stop was requested on the way."""
    progress.stage("starting Ray")
    # Not interrupted: half a Ray could not be stopped.
    launcher.start_ray()
    signals.listen()
    for stage, step in (("starting Serve", launcher.start_serve), ("deploying", launcher.deploy)):
        if signals.requested:
            return False
        progress.stage(stage)
        try:
            with signals.interrupts():
                step()
        except KeyboardInterrupt:
            return False
    while not signals.wait(0.3):
        state = launcher.state()
        if state.ready:
            return True
        progress.stage(state.stage)
    return False


def _watch(launcher: "Launcher", signals: "StopSignals", progress: "LoadingProgress") -> None:
    """Wait for a stop, telling trouble. Raises PacelineError when Ray goes away under us."""
    healthy = True
    while not signals.wait(2.0):
        trouble = launcher.trouble()
        if trouble is not None and healthy:
            progress.say(f"Not healthy: {trouble}. Serve is repairing it.")
        elif trouble is None and not healthy:
            progress.say("Healthy again.")
        healthy = trouble is None


def _drain(config: "AppConfig", launcher: "Launcher", signals: "StopSignals") -> None:
    """Let requests end, unless Ray was stopped with us (a signal to all processes of a group)."""
    with suppress(KeyboardInterrupt):
        with signals.interrupts(limit_s=ALIVE_S):
            launcher.application()
        with signals.interrupts(config.replicas.graceful_shutdown_timeout_s + TEAR_DOWN_S):
            launcher.drain()


def _ready_lines(config: "AppConfig", elapsed_s: float, address: str | None) -> str:
    from cluster.urls import address_in_url
    from deployments.reach import http_answers

    server = config.server
    ready = f"Ready after {elapsed_s:.0f} s"
    serves = f"serves {config.model_name}, policy {choice_in_words(config.initial_policy)}"
    if address is not None and not http_answers(server):
        return (
            f"{ready}: the cluster at {address} {serves}. Its Serve listens where it was told to "
            f"when it was started; that is not {server.host}, port {server.port}."
        )
    url = f"http://{address_in_url(server.host, server.port)}"
    body = {"model": config.model_name, "messages": [{"role": "user", "content": "Hello!"}]}
    return (
        f"{ready}: {url} {serves}. Try:\n"
        f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' "
        f"-d {shlex.quote(json.dumps(body))}"
    )


def metrics_line(addresses: list[str], usual_is_taken: bool) -> str:
    """Where Prometheus finds the metrics of each machine."""
    from deployments.ports import METRICS_PORT

    if not addresses:
        return "Metrics: Ray exports none here."
    told = ", ".join(f"http://{host}/metrics" for host in addresses)
    reason = f" (port {METRICS_PORT} is taken)" if usual_is_taken else ""
    return f"Metrics: {told}{reason}. For Prometheus: paceline observe."


def choice_in_words(choice: "PolicyChoice") -> str:
    """`adaptive`, `off`, `fixed 4` or `table 1:5,8:2`, as `paceline policy set` takes it."""
    if choice.mode in ("adaptive", "off"):
        return choice.mode
    if choice.mode == "fixed":
        return f"fixed {choice.max_draft_len}"
    return "table " + ",".join(f"{batch_size}:{length}" for batch_size, length in choice.rungs)
