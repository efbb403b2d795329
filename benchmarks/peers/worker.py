"""The benchmark's side of a worker: a process that is asked, one request at a time.

A worker runs only while it loads or answers. Otherwise it is stopped (SIGSTOP): the thread pools of
these libraries spin while they wait, and would take the cores from whoever is measured.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

LOAD_SECONDS = 1200.0
"""Compilers are patient."""
RUN_SECONDS = 600.0
EXIT_SECONDS = 10.0


class WorkerError(Exception):
    """A worker refused a request, gave something else, died or hung: one line."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker measured of one request."""

    seconds: float
    num_tokens: int
    rss_bytes: int
    """Resident memory of the worker after it."""


class Worker:
    """One process. `end` it, whatever happened."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        cwd: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._failure: str | None = None
        self._unread = b""
        self._ended = False
        with log.open("wb") as noise:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                env={**os.environ, **(environment or {})},
                # A group of its own: stopped and ended with its children, and Ctrl-C is ours alone.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def load(self, settings: dict[str, Any], timeout_s: float = LOAD_SECONDS) -> dict[str, Any]:
        """The ready message: versions and facts. Raises WorkerError; the worker has ended then."""
        try:
            return self._exchange(settings, timeout_s)
        except WorkerError as error:
            self._fail(str(error))
            raise

    def ask(
        self,
        prompts: list[list[int]],
        new_tokens: int,
        draft_len: int | None,
        timeout_s: float = RUN_SECONDS,
    ) -> Answer:
        """Measure one request. Raises WorkerError; whoever died or hung fails ever after."""
        request = {"prompts": prompts, "new_tokens": new_tokens, "draft_len": draft_len}
        reply = self._exchange(request, timeout_s)
        try:
            answer = Answer(**reply)
        except TypeError:
            raise WorkerError(f"answered {json.dumps(reply)[:200]}") from None
        expected = new_tokens * len(prompts)
        if answer.num_tokens != expected:
            raise WorkerError(f"gave {answer.num_tokens} tokens instead of {expected}")
        return answer

    def end(self) -> None:
        """Kill the process and its children, stopped or not."""
        if self._ended:
            return  # the number may be another's by now
        self._ended = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # a request that was never read
                pipe.close()

    def _exchange(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._failure is not None:
            raise WorkerError(self._failure)
        os.killpg(self.pid, signal.SIGCONT)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._died()
        line = self._read_line(time.monotonic() + timeout_s, timeout_s)
        self._pause()
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise WorkerError(f"answered {line[:200]!r}")
        if "error" in reply:
            raise WorkerError(str(reply["error"]))
        return reply

    def _read_line(self, deadline: float, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left)[0]:
                self._fail(f"gave no answer in {timeout_s:g} s")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                self._died()
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _pause(self) -> None:
        """Stop it, and wait until it stands still (or has ended)."""
        os.killpg(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _died(self) -> NoReturn:
        try:
            code = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._fail("closed its output")
        lines = self.log.read_text(errors="replace").strip().splitlines()
        last = f": {lines[-1][:200]}" if lines else ""
        self._fail(f"ended with code {code}{last}")

    def _fail(self, reason: str) -> NoReturn:
        self._failure = reason
        self.end()
        raise WorkerError(reason)
