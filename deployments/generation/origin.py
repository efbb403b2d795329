"""What an answer has by chance: the same for whoever makes it, or makes the rest of it."""

import secrets
import time
import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    request_id: str
    created_unix_s: int
    seed: int | None = None
    """For a request that has none; None: the engine draws one."""
    passed_s: float = 0.0
    """Of its time, where others had it before."""

    @classmethod
    def new(cls) -> "Origin":
        return cls(uuid.uuid4().hex, int(time.time()))

    @classmethod
    def repeatable(cls) -> "Origin":
        """One whose answer is the same wherever it is made."""
        return cls(uuid.uuid4().hex, int(time.time()), secrets.randbits(63))
