"""Rank 0's end of the plan channel: sends plans, and watches over the ranks."""

import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.ranks import frames
from engine.ranks.spec import RankFailed, RankSpec
from engine.ranks.uplink import same_secret

logger = logging.getLogger(__name__)

SILENT_S = 4.0
"""A rank that was not heard of for so long while work is pending has stopped; it tells every second
that it runs."""
WATCH_EVERY_S = 0.5
HELLO_S = 10.0
CAUSE_S = 2.0
"""How long to wait for the reason when a step failed: a rank tells it before it ends."""


@dataclass(slots=True)
class _Rank:
    connection: socket.socket | None = None
    pid: int | None = None
    heard_at_s: float = field(default_factory=time.monotonic)


class Hub:
    """One group of ranks. `failure` is set once and stays: a failed group needs new processes."""

    def __init__(
        self,
        size: int,
        *,
        host: str,
        report: Callable[[str], None],
        kill: Callable[[int], None],
    ) -> None:
        """Listens on `host`, on a free port. `report` is told what the ranks are doing; `kill`
        ends the process of a rank, which unblocks whoever waits for it."""
        self._size = size
        self._report = report
        self._kill = kill
        self._secret = secrets.token_hex(16)
        self._host = host
        self._listener = socket.create_server((host, 0))
        self._changed = threading.Condition()
        self._ranks = {rank: _Rank() for rank in range(1, size)}
        self._failure: str | None = None
        self._busy_since_s: float | None = None
        self._closing = threading.Event()
        for target, name in ((self._accept, "rank-accept"), (self._watch, "rank-watch")):
            threading.Thread(target=target, name=name, daemon=True).start()

    def spec(self, rank: int, store_port: int) -> RankSpec:
        """What that rank is to be started with."""
        port = self._listener.getsockname()[1]
        return RankSpec(rank, self._size, self._host, store_port, port, self._secret)

    @property
    def failure(self) -> str | None:
        """Why the group is of no more use: which rank, and what happened."""
        return self._failure

    def send_plan(self, message: bytes) -> None:
        """To every rank. Raises RankFailed when one is gone."""
        if self._failure is not None:
            raise RankFailed(self._failure)
        self._busy_since_s = time.monotonic()
        for rank, state in self._ranks.items():
            try:
                assert state.connection is not None
                frames.send(state.connection, frames.PLAN, message)
            except OSError as error:
                self.fail(rank, f"is gone ({error})")
                raise RankFailed(self._failure) from error

    def done(self) -> None:
        """The step is over: no rank is waited for."""
        self._busy_since_s = None

    def cause(self) -> str | None:
        """Why a step failed, if a rank tells it within a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None, CAUSE_S)
        return self._failure

    def fail(self, rank: int, reason: str) -> None:
        """Note the first failure."""
        with self._changed:
            if self._failure is None and not self._closing.is_set():
                self._failure = f"rank {rank} {reason}"
                logger.error("%s", self._failure)
            self._changed.notify_all()

    def close(self) -> None:
        """Tell the ranks to end, and let go of them."""
        self._closing.set()
        self._listener.close()
        for state in self._ranks.values():
            if state.connection is not None:
                try:
                    frames.send(state.connection, frames.END)
                    state.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                state.connection.close()

    # ---- threads

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._listen, args=(connection,), name="rank-listen", daemon=True
            ).start()

    def _listen(self, connection: socket.socket) -> None:
        rank = self._welcome(connection)
        if rank is None:
            connection.close()
            return
        try:
            while True:
                kind, body = frames.receive(connection)
                self._ranks[rank].heard_at_s = time.monotonic()
                if kind == frames.STAGE:
                    self._report(f"rank {rank}: {body.decode(errors='replace')}")
                elif kind == frames.FAILED:
                    self.fail(rank, f"failed: {body.decode(errors='replace')}")
        except OSError:
            pid = self._ranks[rank].pid
            self.fail(rank, f"is gone: its process {pid} ended without a word")

    def _welcome(self, connection: socket.socket) -> int | None:
        """The rank that connected; None for a stranger."""
        try:
            connection.settimeout(HELLO_S)
            kind, body = frames.receive(connection)
            told = json.loads(body)
            rank, pid = told["rank"], told["pid"]
            if kind != frames.HELLO or not same_secret(told["secret"], self._secret):
                return None
            state = self._ranks[rank]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            if state.connection is not None:
                return None
            state.connection, state.pid, state.heard_at_s = connection, pid, time.monotonic()
        return int(rank)

    def missing(self) -> list[int]:
        """Ranks that have not connected yet."""
        return [rank for rank, state in self._ranks.items() if state.connection is None]

    def _watch(self) -> None:
        """A rank that hangs says nothing: it is killed, so that the step fails instead of waiting
        for it."""
        while not self._closing.wait(WATCH_EVERY_S):
            busy_since_s, now = self._busy_since_s, time.monotonic()
            if busy_since_s is None:
                continue
            for rank, state in self._ranks.items():
                silent_s = now - max(state.heard_at_s, busy_since_s)
                if silent_s > SILENT_S:
                    self.fail(rank, f"hangs: it was not heard of for {silent_s:.0f} s")
                    self._kill(rank)
