"""A rank that fails in start-up, in the way that the model's folder is named."""

import os
import pickle
import signal
import sys

from engine.ranks import follow

spec, config = pickle.loads(sys.stdin.buffer.read())


def fail(*_: object, **__: object) -> None:
    match config.model.name:
        case "raises":
            raise MemoryError("3 GiB were asked for")
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "refuses to connect":
            sys.exit(3)


if config.model.name == "refuses to connect":
    fail()
follow._follow = fail
try:
    follow.follow(spec, config)
except MemoryError:
    sys.exit(1)
