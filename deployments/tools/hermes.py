"""Hermes, Qwen 2.5 and 3: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, repeated."""

from deployments.tools.call_reader import read_call, read_content
from deployments.tools.events import Reply
from deployments.tools.source import Source, Steps

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def read_hermes(source: Source, reply: Reply, names: frozenset[str]) -> Steps[None]:
    """A `Layout`. The closing tag may be missing, as where the model ends with the call."""
    while (yield from read_content(source, reply, OPEN)):
        num_before = reply.num_calls
        yield from source.take_spaces()
        if not (yield from read_call(source, reply, names)):
            reply.content(source.recall())
        if reply.is_full:
            return
        if reply.num_calls > num_before:
            yield from source.take_spaces()
            if (yield from source.literal(CLOSE)):
                source.forget()
            else:
                reply.content(source.recall())
