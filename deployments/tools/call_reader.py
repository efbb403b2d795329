"""Readers of the parts that families' layouts have in common: content, calls, lists of calls.

A reader of calls returns whether all was as it should be. If not, what was taken and not sent out
waits in the source, to be recalled as content: nothing that a model wrote is lost.
"""

import json
import re
from collections.abc import Callable

from deployments.tools.events import Reply
from deployments.tools.json_reader import read_string, read_value
from deployments.tools.source import Source, Steps

Layout = Callable[[Source, Reply, frozenset[str]], Steps[None]]
"""Reads a whole reply. Arguments: the text, where its events go, and the functions' names.

It ends where the text does, or before, when the reply holds as many calls as it may."""

_ROLE_OF = {
    "name": "name",
    "arguments": "arguments",
    "parameters": "arguments",
    "id": "id",
    "type": "type",
}
"""Keys of a call. Any other tells that it is none: then it needn't be held back to its end."""


def read_content(source: Source, reply: Reply, marker: str) -> Steps[bool]:
    """Send out content up to `marker`, which is taken. False: there is none up to the end."""
    plain = re.compile(f"[^{re.escape(marker[0])}]+")
    while (yield from source.peek()):
        if (yield from source.literal(marker)):
            return True
        reply.content(source.take() + source.take_run(plain))
        source.forget()
    return False


def read_rest(source: Source, reply: Reply) -> Steps[None]:
    """Send out all that is left as content."""
    while (yield from source.peek()):
        reply.content(source.take_arrived())
        source.forget()


def read_arguments(source: Source, reply: Reply, name: str) -> Steps[bool]:
    """A call of the function `name` begins if an object follows, which is sent out as it comes."""
    if (yield from source.peek()) != "{":
        return False
    reply.start_call(name)
    source.forget()

    def send(piece: str) -> None:
        reply.arguments(piece)
        source.forget()

    return (yield from read_value(source, send))


def read_call(source: Source, reply: Reply, names: frozenset[str]) -> Steps[bool]:
    """One `{"name": ..., "arguments": {...}}`: the keys in any order, `arguments` maybe missing.

    The call begins once its name is known to be one of `names` and its arguments have begun;
    arguments that come before the name wait for it.
    """
    name: str | None = None
    early: list[str] = []
    seen: set[str] = set()
    if not (yield from source.literal("{")):
        return False
    while True:
        yield from source.take_spaces()
        role = _ROLE_OF.get((yield from _quoted(source)) or "")
        if role is None or role in seen:
            return False
        seen.add(role)
        yield from source.take_spaces()
        if not (yield from source.literal(":")):
            return False
        yield from source.take_spaces()
        if role == "arguments" and name is not None:
            if not (yield from read_arguments(source, reply, name)):
                return False
        elif role == "arguments":
            if (yield from source.peek()) != "{":
                return False
            if not (yield from read_value(source, early.append)):
                return False
        else:
            text = yield from _quoted(source)
            if text is None:
                return False
            if role == "name":
                if text not in names:
                    return False
                name = text
                if early:
                    _send_whole(source, reply, name, early)
        yield from source.take_spaces()
        if (yield from source.literal("}")):
            break
        if not (yield from source.literal(",")):
            return False
    if name is None:
        return False
    if "arguments" not in seen:
        _send_whole(source, reply, name, ["{}"])
    source.forget()
    return True


def read_calls(source: Source, reply: Reply, names: frozenset[str]) -> Steps[bool]:
    """A list of one call or more, in brackets; no more of them than the reply may hold."""
    if not (yield from source.literal("[")):
        return False
    while True:
        yield from source.take_spaces()
        if not (yield from read_call(source, reply, names)):
            return False
        if reply.is_full:
            return True
        yield from source.take_spaces()
        if (yield from source.literal("]")):
            break
        if not (yield from source.literal(",")):
            return False
        yield from source.take_spaces()
        if not (yield from source.peek()):  # cut off between two calls
            break
    source.forget()
    return True


def _send_whole(source: Source, reply: Reply, name: str, arguments: list[str]) -> None:
    reply.start_call(name)
    reply.arguments("".join(arguments))
    source.forget()


def _quoted(source: Source) -> Steps[str | None]:
    """What a JSON string says, or None if there is none."""
    pieces: list[str] = []
    if not (yield from read_string(source, pieces.append)):
        return None
    text = json.loads("".join(pieces))
    assert isinstance(text, str)
    return text
