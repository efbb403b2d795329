"""The application under test: `paceline serve` as a process, or whatever answers at a URL."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import yaml

from deployments.commands.policy_answers import ask, taken_over
from engine.errors import ConfigError, PacelineError

_COMMAND = "from deployments.cli import main; main()"
_STOP_S = 60.0
_POLL_S = 0.5
_TIMEOUT_S = 30.0
_HEALTH_S = 2.0
"""Until it answers it is asked again, and a person who wants no more is to be heard."""


class Server(Protocol):
    """Whose policy is set."""

    def set_policy(self, policy: str | dict[str, Any]) -> dict[str, Any]:
        """Return once it is in force, with the description. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class Running:
    """Somebody's server."""

    api_url: str
    """Ends in /v1."""
    api_key: str | None = None

    def set_policy(self, policy: str | dict[str, Any]) -> dict[str, Any]:
        url = self.api_url.removesuffix("/v1")
        described = ask("PUT", url, self.api_key, body={"policy": policy})
        return taken_over(url, self.api_key, described)

    def model(self, headers: Mapping[str, str]) -> str:
        """Name of the first model served. Raises ConfigError."""
        try:
            answer = httpx.get(
                f"{self.api_url}/models",
                headers=dict(headers),
                timeout=_TIMEOUT_S,
                trust_env=False,
            )
            return str(answer.raise_for_status().json()["data"][0]["id"])
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"no models at {self.api_url}/models: {error}") from None


class App:
    """Paceline itself. Ctrl-C at a terminal does not reach it: it is stopped when we are done."""

    def __init__(self, settings: Mapping[str, Any], port: int, folder: Path) -> None:
        self.server = Running(f"http://127.0.0.1:{port}/v1")
        self._log = folder / "server.log"
        config = folder / "server.yaml"
        config.write_text(yaml.safe_dump(dict(settings)))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, "serve", str(config), "--port", str(port)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ},
                start_new_session=True,
            )

    def wait(self, stage: Callable[[str], None], stopped: Callable[[], bool]) -> bool:
        """Until it answers; False when that is not wanted any more. Raises PacelineError with its
        last line when it ends instead."""
        told = ""
        while not stopped():
            lines = self._log.read_text(errors="replace").strip().splitlines()
            if lines and lines[-1] != told:
                told = lines[-1]
                stage(told)
            if self._process.poll() is not None:
                raise PacelineError(f"the application did not start: {told} ({self._log})")
            try:
                url = self.server.api_url.removesuffix("/v1")
                health = httpx.get(f"{url}/health", timeout=_HEALTH_S, trust_env=False)
                if health.status_code == httpx.codes.OK:
                    return True
            except httpx.HTTPError:
                pass
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_S)
        return False

    def stop(self) -> None:
        """Requests in flight may end; after a minute they may not."""
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            self._process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
