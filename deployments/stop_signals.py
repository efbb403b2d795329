"""Ctrl-C and SIGTERM as something to ask about, so that nothing is torn down half-way."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SLICE_S: Final = 0.1


class StopSignals:
    """Notes SIGINT and SIGTERM from `listen` on. `on_stop` is called at each of them."""

    def __init__(self, on_stop: Callable[[int], None]) -> None:
        self._on_stop = on_stop
        self._num_received = 0
        self._interruptible = False

    @property
    def requested(self) -> bool:
        return self._num_received > 0

    def listen(self) -> None:
        """Take the signals over; again after a library took them (`ray.init` takes SIGTERM)."""
        signal.signal(signal.SIGINT, self._receive)
        signal.signal(signal.SIGTERM, self._receive)

    def wait(self, seconds: float) -> bool:
        """Sleep until a stop is requested or the time is over; whether one is requested."""
        # Slices and a plain flag: a handler that set an Event could meet its lock held by us.
        deadline = time.monotonic() + seconds
        while not self.requested and time.monotonic() < deadline:
            time.sleep(_SLICE_S)
        return self.requested

    @contextmanager
    def interrupts(self, limit_s: float = 0.0) -> Iterator[None]:
        """Within, a further signal raises KeyboardInterrupt; so does the limit, unless it is 0."""
        signal.signal(signal.SIGALRM, self._expire)
        self._interruptible = True
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._interruptible = False

    def _expire(self, _signal: int, _frame: FrameType | None) -> None:
        if self._interruptible:
            raise KeyboardInterrupt

    def _receive(self, _signal: int, _frame: FrameType | None) -> None:
        self._num_received += 1
        self._on_stop(self._num_received)
        if self._interruptible:
            raise KeyboardInterrupt
