"""However a reply is cut into pieces, the same comes out; and nothing gets lost."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tools.call_reader import Layout
from deployments.tools.events import CallStarted
from deployments.tools.families import HERMES, LLAMA, MISTRAL
from deployments.tools.forced import forced_arguments_of, read_forced_calls
from tests.deployments.tools.replies import events_of, put_together

LAYOUTS = [
    *(HERMES.layout, LLAMA.layout, MISTRAL.layout),
    *(read_forced_calls, forced_arguments_of("now")),
]
FRAGMENTS = [
    *("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("<tool", "<|", "[TOOL", "[", "]", "{", "}", ":", ",", ";", " ", "\n", '"', "\\", "0", "e"),
    *('{"name": "now", "arguments": {}}', '{"name": "unknown", "arguments": {}}', "now", "text "),
    *('{"name": "now", "parameters": ', '{"a": [1, "}", true]}', '"\\u00e9 \\""', '"name"', '"id"'),
]
cuts = st.lists(st.integers(1, 12), min_size=1, max_size=20)


def cut(text: str, lengths: list[int]) -> list[str]:
    """`text` in pieces of these lengths, over and over."""
    pieces: list[str] = []
    while text:
        length = lengths[len(pieces) % len(lengths)]
        pieces.append(text[:length])
        text = text[length:]
    return pieces


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(character in rest for character in part)


@settings(max_examples=1000, deadline=None)
@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.sampled_from(FRAGMENTS), max_size=16).map("".join),
    cuts,
)
def test_cuts_change_nothing(layout: Layout, text: str, lengths: list[int]) -> None:
    events = events_of(layout, [text])
    assert events == events_of(layout, text) == events_of(layout, cut(text, lengths))
    read = put_together(events)
    if not read.calls:
        assert read.content == text
    assert is_subsequence(read.content, text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Halves of surrogate pairs are valid in JSON text as escapes only.
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=3)
writers = st.fixed_dictionaries(
    {"ensure_ascii": st.booleans(), "indent": st.sampled_from([None, 0, 2, "\t"])}
)


def hermes_text(calls: list[tuple[str, str]]) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
        for name, arguments in calls
    )


def llama_text(calls: list[tuple[str, str]]) -> str:
    return "<|python_tag|>" + "; ".join(
        f'{{"name": "{name}", "parameters": {arguments}}}' for name, arguments in calls
    )


def mistral_text(calls: list[tuple[str, str]]) -> str:
    written = (f'{{"arguments": {arguments}, "name": "{name}"}}' for name, arguments in calls)
    return f"[TOOL_CALLS] [{', '.join(written)}]"


def new_mistral_text(calls: list[tuple[str, str]]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{arguments}" for name, arguments in calls)


WRITERS = [
    (HERMES.layout, hermes_text),
    (LLAMA.layout, llama_text),
    (MISTRAL.layout, mistral_text),
    (MISTRAL.layout, new_mistral_text),
]


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(WRITERS),
    st.lists(st.tuples(st.sampled_from(["now", "search"]), json_objects), min_size=1, max_size=3),
    writers,
    st.sampled_from(["", "A word before.", "1 < 2 [0] {"]),
    cuts,
)
def test_arguments_come_out_as_they_were_written(
    written: tuple[Any, Any],
    calls: list[tuple[str, dict[str, Any]]],
    writer: dict[str, Any],
    content: str,
    lengths: list[int],
) -> None:
    layout, write = written
    texts = [(name, json.dumps(arguments, **writer)) for name, arguments in calls]
    events = events_of(layout, cut(content + write(texts), lengths))
    read = put_together(events)
    assert read.calls == texts
    assert read.content == content
    assert sum(isinstance(event, CallStarted) for event in events) == len(calls)
