"""`paceline serve` as a process of its own, and every process that comes of it."""

import os
import re
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.serve.conftest import WAIT_S, free_port

ROOT = Path(__file__).parents[2]
MARK = "PACELINE_TEST_MARK"
COMMAND = "from deployments.cli import main; main()"


@dataclass
class ServeProcess:
    process: subprocess.Popen[bytes]
    mark: str
    log: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def says(self, pattern: str) -> "re.Match[str] | None":
        return re.search(pattern, self.log.read_text())

    def has_said(self, pattern: str) -> bool:
        return self.says(pattern) is not None or self.process.poll() is not None

    @classmethod
    def start(cls, folder: Path, settings: dict[str, Any], *options: str) -> "ServeProcess":
        """Start it with these settings, written to `folder`, on a free port."""
        config, log = folder / "app.yaml", folder / "log"
        config.write_text(yaml.safe_dump(settings))
        mark, port = uuid.uuid4().hex, free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    COMMAND,
                    "serve",
                    str(config),
                    "--port",
                    str(port),
                    *options,
                ],
                cwd=ROOT,
                env={**os.environ, MARK: mark},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(process, mark, log, port)

    def kill(self) -> None:
        """End it and all that it started, however it stands."""
        for pid in self.survivors():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def exit_code(self) -> int:
        return self.process.wait(WAIT_S)

    def survivors(self) -> list[int]:
        """Processes that it started, or they in turn, known by an inherited variable."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() in environment:
                found.append(int(folder.name))
        return found


def command_line(pid: int) -> bytes:
    """What a process calls itself; nothing once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
