"""Who answers at an address: asked within seconds, and without a word on the terminal."""

import socket
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from deployments.config import ServerSection
from engine.errors import ConfigError
from policy.quoting import shown

CONNECT_S: Final = 4.0
RAY_ANSWER_S: Final = 15.0
HTTP_ANSWER_S: Final = 5.0
RAY_CLIENT: Final = "ray"
"""URL scheme of a Ray Client server, which `ray health-check` does not know."""

_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def require_ray(address: str) -> None:
    """Raise ConfigError unless a Ray cluster answers at `address` (host:port, `auto`, ray://…).

    Ray itself would try for minutes, and end the process when it gives up.
    """
    scheme = urlsplit(address).scheme if "://" in address else ""
    if address != "auto":
        _require_listener(address)
    if scheme == RAY_CLIENT:
        return
    # In a process of its own: a Ray that doesn't answer can neither be interrupted nor hushed.
    command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
    command += ["health-check", "--address", address]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=RAY_ANSWER_S,
            # A Ctrl-C is for us to handle.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"--address: no Ray cluster answers at {shown(address)}") from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else "the health check failed"
        raise ConfigError(f"--address: can't use the Ray cluster at {shown(address)}: {reason}")


def _require_listener(address: str) -> None:
    """Raise ConfigError unless something accepts connections there."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        raise ConfigError(f"--address must be host:port of a Ray cluster, got {shown(address)}")
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except (OSError, ValueError) as error:  # ValueError: a host that can't be a name
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ConfigError(f"--address: nobody answers at {shown(address)}: {reason}") from None


def http_answers(server: ServerSection) -> bool:
    """Whether Serve's proxy answers. Asks the proxy alone: a full replica is no fault of it."""
    host = _ANY_ADDRESS.get(server.host, server.host)
    connection = HTTPConnection(host, server.port, timeout=HTTP_ANSWER_S)
    try:
        connection.request("GET", "/-/healthz")
        connection.getresponse()
    except (OSError, HTTPException):
        return False
    finally:
        with suppress(OSError):
            connection.close()
    return True
