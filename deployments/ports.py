"""Ports of this machine, asked before anything is started."""

import os
import socket
from typing import Final

from deployments.config import ServerSection
from engine.errors import ConfigError
from policy.quoting import shown

METRICS_PORT: Final = 8080
"""Of Prometheus' metrics, where nobody asks for another."""


def require_free_port(server: ServerSection) -> None:
    """Raise ConfigError unless the application can listen where it is to."""
    _require_free(server.host, server.port, "server.host", "server.port", "--port")


def require_free_for(host: str, port: int) -> None:
    """The same of a command with the options --host and --port."""
    _require_free(host, port, "--host", "--port", "--port")


def free_metrics_port(asked: int | None) -> int:
    """The port to export metrics at: `asked`, or else the usual one where it is free, and 0 (any)
    where it is not. Raises ConfigError when the one that was asked for is taken."""
    try:
        port = METRICS_PORT if asked is None else asked
        _require_free("0.0.0.0", port, "--metrics-port", "--metrics-port", "--metrics-port")
    except ConfigError:
        if asked is None:
            return 0
        raise
    return port


def _require_free(host: str, port: int, host_key: str, port_key: str, option: str) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
    except (OSError, ValueError) as error:  # ValueError: what can't be a name at all
        reason = error.strerror if isinstance(error, OSError) else "not a valid name"
        raise ConfigError(
            f"{host_key} must be an address of this machine, got {shown(host)}: {reason}"
        ) from None
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(
                f"{port_key}: can't listen on {host}, port {port} ({reason}); "
                f"choose another one with {option}"
            ) from None
