"""What lives when a replica is ready is not looked at again; what comes later still is."""

import subprocess
import sys

PROGRAM = """
import gc, weakref
from deployments import garbage

class Ring:
    def __init__(self):
        self.itself = self

kept = [Ring() for _ in range(100)]
dead = weakref.ref(Ring())
garbage.settle()
assert dead() is None, "garbage from before is kept for ever"
assert gc.get_freeze_count() >= 100
assert not gc.get_objects(), "the next full collection looks at something"
later = [weakref.ref(Ring()) for _ in range(50_000)]
assert sum(ring() is not None for ring in later) < 25_000, "nothing is collected any more"
"""


def test_only_what_comes_later_is_collected() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
