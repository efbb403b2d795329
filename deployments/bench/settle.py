"""Waits for what an engine goes on doing in the background once it is built."""

import threading

from engine.build import HUGE_PAGES_THREAD


def settle() -> None:
    """Memory is moved to huge pages for up to 20 s, in which steps take up to twice as long."""
    for thread in threading.enumerate():
        if thread.name == HUGE_PAGES_THREAD:
            thread.join()
