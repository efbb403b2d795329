"""Replies that a grammar forces to be calls and nothing else (see `grammar`)."""

from deployments.tools.call_reader import Layout, read_arguments, read_calls, read_rest
from deployments.tools.events import Reply
from deployments.tools.source import Source, Steps


def read_forced_calls(source: Source, reply: Reply, names: frozenset[str]) -> Steps[None]:
    """A `Layout`: `[{"name": ..., "arguments": {...}}, ...]`."""
    yield from source.take_spaces()
    if not (yield from read_calls(source, reply, names)):
        reply.content(source.recall())
    if not reply.is_full:
        yield from read_rest(source, reply)


def forced_arguments_of(name: str) -> Layout:
    """The layout of a reply that is the arguments of the function `name`."""

    def read(source: Source, reply: Reply, names: frozenset[str]) -> Steps[None]:
        yield from source.take_spaces()
        if not (yield from read_arguments(source, reply, name)):
            reply.content(source.recall())
        if not reply.is_full:
            yield from read_rest(source, reply)

    return read
