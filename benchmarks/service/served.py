"""`paceline serve` as a process of its own, and who is who among the processes that come of it."""

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deployments.app import DEPLOYMENT_NAME
from deployments.launcher import APP_NAME
from tests.serve.serve_process import ServeProcess

START_S = 600.0
"""On a machine where nothing is compiled or calibrated yet."""
POLL_S = 0.2

REPLICA, PROXY, POLICY_ACTOR, RANK = "replica", "proxy", "policy actor", "rank"
INGRESS = "ingress"
"""What stands in front of the replicas with `resilient: true`."""
OTHER = "Ray and Serve"
KINDS = (REPLICA, INGRESS, PROXY, POLICY_ACTOR, RANK, OTHER)
_ACTORS = {"ProxyActor": PROXY, "PolicyActor": POLICY_ACTOR, "RankActor": RANK}
_TITLE = re.compile(rf"ray::(\w+)(?::{APP_NAME}:([\w-]+))?")
"""How actors call themselves, at the beginning; those of Serve with application and deployment."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class StartFailed(Exception):
    """The application did not come up; the message is what it said last."""


class Served:
    """A running application, seen from outside: a URL and processes."""

    def __init__(self, process: ServeProcess) -> None:
        self._process = process
        self.url = process.url
        self.port = process.port

    def pids(self) -> dict[str, set[int]]:
        """By kind: those that run now."""
        found: dict[str, set[int]] = {kind: set() for kind in KINDS}
        for pid in self._process.survivors():
            found[_kind(pid)].add(pid)
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """By kind: what all processes have used since they began."""
        return {kind: sum(_cpu_seconds(pid) for pid in pids) for kind, pids in self.pids().items()}

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)


@contextmanager
def serving(settings: dict[str, Any]) -> Iterator[Served]:
    """The application with these settings, on a free port, ready. Raises StartFailed."""
    with tempfile.TemporaryDirectory() as folder:
        process = ServeProcess.start(Path(folder), settings)
        try:
            deadline = time.monotonic() + START_S
            while not process.has_said("Ready after"):
                if time.monotonic() > deadline:
                    raise StartFailed(f"not ready after {START_S:.0f} s: {_end(process)}")
                time.sleep(POLL_S)
            if process.process.poll() is not None:
                raise StartFailed(_end(process))
            yield Served(process)
        finally:
            process.kill()


def resident_bytes(pid: int) -> int:
    """0 for a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def open_files(pid: int) -> int:
    """Sockets included; 0 for a process that has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def kind_of(title: str) -> str:
    """Of a process, by what it calls itself.

    >>> kind_of("ray::ServeReplica:paceline:paceline.handle_request")
    'replica'
    """
    found = _TITLE.match(title)
    if found is None:
        return OTHER
    actor, deployment = found.groups()
    if actor == "ServeReplica":
        return REPLICA if deployment == DEPLOYMENT_NAME else INGRESS
    return _ACTORS.get(actor, OTHER)


def _kind(pid: int) -> str:
    try:
        return kind_of(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"))
    except OSError:
        return OTHER


def _cpu_seconds(pid: int) -> float:
    try:
        # The command may hold blanks and brackets; what follows it does not.
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(numbers[11]) + int(numbers[12])) / _TICKS


def _end(process: ServeProcess) -> str:
    return process.log.read_text()[-500:].strip()
