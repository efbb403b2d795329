"""Messages over a socket: a length, a kind, and so many bytes."""

import socket
import struct
from typing import Final

from engine.ranks.wire import MAX_BYTES

_HEAD: Final = struct.Struct("<IB")

HELLO: Final = 1
"""Of a rank: its number and the secret."""
STAGE: Final = 2
"""Of a rank: what it is doing."""
ALIVE: Final = 3
"""Of a rank, every second."""
FAILED: Final = 4
"""Of a rank, before it ends: why."""
PLAN: Final = 5
"""Of rank 0: compute this."""
END: Final = 6
"""Of rank 0: nothing more will come."""


class Closed(ConnectionError):
    """The other side is gone."""


def send(connection: socket.socket, kind: int, body: bytes = b"") -> None:
    """Raises OSError when the other side is gone."""
    connection.sendall(_HEAD.pack(len(body), kind) + body)


def receive(connection: socket.socket) -> tuple[int, bytes]:
    """Waits for the next message, however long. Raises Closed, or another OSError."""
    length, kind = _HEAD.unpack(_exactly(connection, _HEAD.size))
    if length > MAX_BYTES:
        raise Closed(f"a message of {length} bytes was announced; the limit is {MAX_BYTES}")
    return kind, _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(count)
        if not part:
            raise Closed("the connection was closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
