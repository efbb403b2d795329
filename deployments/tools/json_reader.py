"""JSON values read character by character as they arrive.

Each reader hands to `sink` every character that still belongs to a valid value, at once; the first
one that doesn't is left in the source, and the reader returns False. Depth costs no recursion.
"""

import re
from collections.abc import Callable, Container

from deployments.tools.source import JSON_SPACES, Source, Steps

Sink = Callable[[str], object]

_CLOSER_OF = {"{": "}", "[": "]"}
_REST_OF = {"t": "true", "f": "false", "n": "null"}
_WITHIN_STRING = re.compile(r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))+')
"""All but an escape that has arrived in part."""
_SPACES = re.compile(f"[{JSON_SPACES}]+")
_DIGITS = re.compile(r"[0-9]+")
_DIGIT = frozenset("0123456789")
_HEX_DIGIT = frozenset("0123456789abcdefABCDEF")
_SIMPLE_ESCAPE = frozenset('"\\/bfnrt')


def read_value(source: Source, sink: Sink) -> Steps[bool]:
    """One value, without white space around it. Whether it is whole and valid."""
    closers: list[str] = []
    while True:
        char = yield from source.peek()
        if char in _CLOSER_OF:
            sink(source.take())
            closers.append(_CLOSER_OF[char])
            yield from _spaces(source, sink)
            is_empty = (yield from source.peek()) == closers[-1]
            if not is_empty:
                if char == "{" and not (yield from _key(source, sink)):
                    return False
                continue
        elif not (yield from _scalar(source, sink)):
            return False
        # Here a value has ended, or an empty object or list is about to.
        while closers:
            yield from _spaces(source, sink)
            char = yield from source.peek()
            if char == closers[-1]:
                sink(source.take())
                closers.pop()
                continue
            if char != ",":
                return False
            sink(source.take())
            yield from _spaces(source, sink)
            if closers[-1] == "}" and not (yield from _key(source, sink)):
                return False
            break
        else:
            return True


def read_string(source: Source, sink: Sink) -> Steps[bool]:
    """One string, in its quotes. Whether it is whole and valid."""
    if (yield from source.peek()) != '"':
        return False
    sink(source.take())
    while True:
        run = source.take_run(_WITHIN_STRING)
        if run:
            sink(run)
        char = yield from source.peek()
        if char == '"':
            sink(source.take())
            return True
        if char == "\\":
            sink(source.take())
            if not (yield from _escape(source, sink)):
                return False
        elif char < " ":  # a control character, or the end
            return False


def _key(source: Source, sink: Sink) -> Steps[bool]:
    """A key, its colon and the spaces around that."""
    if not (yield from read_string(source, sink)):
        return False
    yield from _spaces(source, sink)
    if not (yield from _one_of(source, sink, (":",))):
        return False
    yield from _spaces(source, sink)
    return True


def _scalar(source: Source, sink: Sink) -> Steps[bool]:
    char = yield from source.peek()
    if char == '"':
        return (yield from read_string(source, sink))
    if char in _REST_OF:
        for letter in _REST_OF[char]:
            if not (yield from _one_of(source, sink, (letter,))):
                return False
        return True
    return (yield from _number(source, sink))


def _number(source: Source, sink: Sink) -> Steps[bool]:
    yield from _one_of(source, sink, ("-",))
    if not (yield from _one_of(source, sink, ("0",))) and not (yield from _digits(source, sink)):
        return False
    if (yield from _one_of(source, sink, (".",))) and not (yield from _digits(source, sink)):
        return False
    if (yield from _one_of(source, sink, ("e", "E"))):
        yield from _one_of(source, sink, ("+", "-"))
        return (yield from _digits(source, sink))
    return True


def _digits(source: Source, sink: Sink) -> Steps[bool]:
    """As many as come. Whether there is one at least."""
    has_any = False
    while (yield from source.peek()) in _DIGIT:
        sink(source.take_run(_DIGITS))
        has_any = True
    return has_any


def _escape(source: Source, sink: Sink) -> Steps[bool]:
    """What follows a backslash."""
    if not (yield from _one_of(source, sink, ("u",))):
        return (yield from _one_of(source, sink, _SIMPLE_ESCAPE))
    for _ in range(4):
        if not (yield from _one_of(source, sink, _HEX_DIGIT)):
            return False
    return True


def _one_of(source: Source, sink: Sink, characters: Container[str]) -> Steps[bool]:
    """Take the next character if it is one of these."""
    if (yield from source.peek()) not in characters:
        return False
    sink(source.take())
    return True


def _spaces(source: Source, sink: Sink) -> Steps[None]:
    # Not `take_spaces`, which keeps them until something else comes.
    while (yield from source.peek()) and (run := source.take_run(_SPACES)):
        sink(run)
