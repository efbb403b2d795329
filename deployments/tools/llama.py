"""Llama 3: `{"name": ..., "parameters": {...}}`, several separated by `;`.

They are the whole reply, or follow `<|python_tag|>`. After that tag there may also be Python, which
is no call of a function that was offered, and so is content.
"""

from deployments.tools.call_reader import read_call, read_content
from deployments.tools.events import Reply
from deployments.tools.source import Source, Steps

TAG = "<|python_tag|>"


def read_llama(source: Source, reply: Reply, names: frozenset[str]) -> Steps[None]:
    """A `Layout`. What a reply begins with is held back while it may be a call."""
    yield from source.take_spaces()
    while True:
        if not (yield from _read_series(source, reply, names)):
            reply.content(source.recall())
        if reply.is_full or not (yield from read_content(source, reply, TAG)):
            return
        yield from source.take_spaces()


def _read_series(source: Source, reply: Reply, names: frozenset[str]) -> Steps[bool]:
    while (yield from read_call(source, reply, names)):
        if reply.is_full:
            return True
        yield from source.take_spaces()
        if (yield from source.literal(";")):
            yield from source.take_spaces()
        yield from source.literal(TAG)
        yield from source.take_spaces()
        if not (yield from source.peek()):
            source.forget()
            return True
    return False
