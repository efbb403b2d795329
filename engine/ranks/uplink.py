"""A rank's end of the plan channel."""

import hmac
import json
import os
import socket
import threading
from types import TracebackType
from typing import Self

from engine.ranks import frames
from engine.ranks.spec import RankSpec

ALIVE_EVERY_S = 1.0
CONNECT_S = 30.0


class Uplink:
    """Connects to rank 0, says every second that this process runs, and brings the plans.

    The rank waits for a plan in `receive`, not in a collective operation of its group, and so for
    as long as there is nothing to do.
    """

    def __init__(self, spec: RankSpec) -> None:
        """Raises OSError when rank 0 can't be reached."""
        self._socket = socket.create_connection((spec.host, spec.plan_port), timeout=CONNECT_S)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sending = threading.Lock()
        self._ended = threading.Event()
        hello = {"rank": spec.rank, "secret": spec.secret, "pid": os.getpid()}
        self._send(frames.HELLO, json.dumps(hello).encode())
        threading.Thread(target=self._tell_alive, name="rank-alive", daemon=True).start()

    def stage(self, stage: str) -> None:
        """Tell what this rank is doing."""
        self._send(frames.STAGE, stage.encode())

    def failed(self, reason: str) -> None:
        """Tell why this rank is about to end. Rank 0 may be gone; then nobody is told."""
        try:
            self._send(frames.FAILED, reason.encode())
        except OSError:
            return

    def receive(self) -> bytes | None:
        """The next plan; None when there will be no more, because rank 0 said so or is gone."""
        try:
            kind, body = frames.receive(self._socket)
        except OSError:
            return None
        return body if kind == frames.PLAN else None

    def _send(self, kind: int, body: bytes = b"") -> None:
        with self._sending:
            frames.send(self._socket, kind, body)

    def _tell_alive(self) -> None:
        while not self._ended.wait(ALIVE_EVERY_S):
            try:
                self._send(frames.ALIVE)
            except OSError:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._socket.close()


def same_secret(told: object, expected: str) -> bool:
    """Compared in a time that tells nothing."""
    return isinstance(told, str) and hmac.compare_digest(told.encode(), expected.encode())
