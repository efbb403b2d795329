"""Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, or in newer models
`[TOOL_CALLS]name[ARGS]{...}`, repeated, some of which write an id before the arguments."""

import re

from deployments.tools.call_reader import read_arguments, read_calls, read_content
from deployments.tools.events import Reply
from deployments.tools.source import Source, Steps

CALLS, CALL_ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"

_WORD = re.compile(r"[a-zA-Z0-9_-]+")


def read_mistral(source: Source, reply: Reply, names: frozenset[str]) -> Steps[None]:
    """A `Layout`."""
    while (yield from read_content(source, reply, CALLS)):
        yield from source.take_spaces()
        if (yield from source.peek()) == "[":
            is_whole = yield from read_calls(source, reply, names)
        else:
            is_whole = yield from _read_named(source, reply, names)
        if not is_whole:
            reply.content(source.recall())
        if reply.is_full:
            return


def _read_named(source: Source, reply: Reply, names: frozenset[str]) -> Steps[bool]:
    name = yield from _word(source)
    if name not in names:
        return False
    if (yield from source.literal(CALL_ID)):
        yield from _word(source)
    if not (yield from source.literal(ARGUMENTS)):
        return False
    yield from source.take_spaces()
    return (yield from read_arguments(source, reply, name))


def _word(source: Source) -> Steps[str]:
    runs = []
    while (yield from source.peek()) and (run := source.take_run(_WORD)):
        runs.append(run)
    return "".join(runs)
