"""`paceline observe`: a Prometheus that watches a running application, with rules and alerts."""

import os
from pathlib import Path
from typing import Annotated

import typer

from deployments.commands.options import ApiKey, bearer
from engine.errors import ConfigError
from policy.quoting import SHOWN_PATH_CHARACTERS, shown

ANSWER_S = 30.0


def observe(
    url: Annotated[
        str, typer.Option(help="Where the application answers.")
    ] = "http://127.0.0.1:8000",
    api_key: ApiKey = None,
    folder: Annotated[
        Path, typer.Option(help="For configuration, rules and what was measured.")
    ] = Path("out/observe"),
    host: Annotated[str, typer.Option(help="Address that Prometheus listens on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port that Prometheus listens on.")
    ] = 9090,
    program: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="PATH", help="The program, if not on the path."),
    ] = None,
    write_only: Annotated[
        bool, typer.Option("--write-only", help="Write the configuration; start nothing.")
    ] = False,
) -> None:
    """Start Prometheus on the metrics of a running application. Ctrl-C stops it.

    It asks the application where its machines export their metrics, again and again: machines may
    come and go.
    """
    from cluster.metrics.prometheus import (
        CONFIG_FILE,
        Observed,
        command,
        write_folder,
    )
    from cluster.urls import address_in_url
    from deployments.ports import require_free_for

    addresses = _metric_addresses(url, api_key)
    folder = folder.absolute()
    found = None if write_only else _program(program)
    if found:
        # Before anything is written: another Prometheus may run from this folder.
        require_free_for(host, port)
    try:
        write_folder(folder, Observed(url, api_key))
    except OSError as error:
        told = shown(str(folder), SHOWN_PATH_CHARACTERS)
        raise ConfigError(f"--folder: can't write to {told}: {error.strerror}") from None
    typer.echo(f"Configuration and rules: {folder / CONFIG_FILE}")
    if found is None:
        return
    typer.echo(f"Prometheus: http://{address_in_url(host, port)} watches {', '.join(addresses)}")
    try:
        # In our place: signals and exit code are its own.
        os.execvp(found, command(found, folder, host, port))
    except OSError as error:
        told = shown(found, SHOWN_PATH_CHARACTERS)
        raise ConfigError(f"--prometheus: can't start {told}: {error.strerror}") from None


def _program(named: str | None) -> str:
    """Raises ConfigError where there is none."""
    from cluster.metrics.prometheus import find_program

    found = named or find_program("prometheus")
    if found is None:
        raise ConfigError(
            "no Prometheus is installed: `make observe` gets one where Debian's packages are to be "
            "had; or name the program with --prometheus"
        )
    return found


def _metric_addresses(url: str, api_key: str | None) -> list[str]:
    """Raises ConfigError when the application tells none."""
    import httpx

    from cluster.metrics.prometheus import TARGETS_PATH

    headers = bearer(api_key)
    try:
        answer = httpx.get(
            f"{url.rstrip('/')}{TARGETS_PATH}", headers=headers, timeout=ANSWER_S, trust_env=False
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"--url: no answer from {url}: {error}") from None
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise ConfigError(f"--api-key: {url} wants another one")
    try:
        addresses = [str(target) for group in answer.json() for target in group["targets"]]
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"--url: {url} answered {answer.status_code} and no addresses; is it Paceline?"
        ) from None
    if not addresses:
        raise ConfigError(f"--url: Ray exports no metrics on the machines of {url}")
    return addresses
