"""Work that computes before the engine's own thread does."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def in_passing_thread(work: Callable[[], Result]) -> Result:
    """`work()`, in a thread that ends with it. Raises what it raises.

    For each thread that computes, OpenMP (GNU's) keeps helper threads for as long as that thread
    lives. Once there are more of them than cores they all go to sleep whenever they have to wait,
    hundreds of times a step, and waking up takes as long as what they are woken for. So whoever
    builds, calibrates or rehearses an engine that another thread will run leaves none behind.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="passing") as thread:
        return thread.submit(work).result()
