"""What computes before the engine does leaves no threads behind."""

import os
import subprocess
import sys

import pytest

from engine.passing_thread import in_passing_thread

COUNTS = """
import os, time
import torch
from engine.passing_thread import in_passing_thread

torch.set_num_threads(3)  # which starts a pool that stays, and is not OpenMP's

def compute():
    torch.ones(512, 512).exp().sum()
    return threads()

def threads():
    return len(os.listdir("/proc/self/task"))

before = threads()
during = in_passing_thread(compute)
until = time.monotonic() + 60
while threads() > before and time.monotonic() < until:
    time.sleep(0.01)
print(during - before, threads() - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux does")
def test_helper_threads_end_with_it() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", COUNTS], check=True, capture_output=True, text=True, timeout=120
    ).stdout
    more_during, more_after = map(int, shown.split())
    assert more_during >= 3, "itself and two helpers"
    assert more_after == 0


def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_passing_thread(lambda: 1 // 0)
    assert in_passing_thread(lambda: "done") == "done"
