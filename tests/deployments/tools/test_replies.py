"""What each family's models write, and what a client gets of it."""

import json

import pytest

from deployments.tools.call_reader import Layout
from deployments.tools.events import CallArguments, CallStarted, ContentText
from deployments.tools.families import HERMES, LLAMA, MISTRAL
from tests.deployments.tools.replies import parser_of, put_together, read_reply, read_whole

H, L, M = HERMES.layout, LLAMA.layout, MISTRAL.layout
WEATHER = ("get_weather", '{"city": "Paris"}')
NOW = ("now", "{}")

WHOLE = [
    pytest.param(
        H,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        ("", [WEATHER]),
        id="hermes",
    ),
    pytest.param(
        H,
        'Let me look.\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'
        '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n',
        ("Let me look.", [WEATHER, NOW]),
        id="hermes: content before, two calls",
    ),
    pytest.param(
        H,
        '<tool_call>{"name":"now","arguments":{}}</tool_call>\n\nThat is the time.\n',
        ("\n\nThat is the time.\n", [NOW]),
        id="hermes: content after",
    ),
    pytest.param(
        H,
        'One\n<tool_call>{"name":"now","arguments":{}}</tool_call>\nTwo'
        '<tool_call>{"name":"now","arguments":{}}</tool_call>',
        ("One\nTwo", [NOW, NOW]),
        id="hermes: content between",
    ),
    pytest.param(
        H,
        '<tool_call> \r\n\t{ "arguments" : {"city": "Paris"} ,\n "name" : "get_weather" } ',
        ("", [WEATHER]),
        id="hermes: arguments first, no closing tag",
    ),
    pytest.param(
        H,
        '<tool_call>{"name": "now", "arguments": {}}<tool_call>{"name": "now"}</tool_call>',
        ("", [NOW, NOW]),
        id="hermes: one closing tag missing, no arguments",
    ),
    pytest.param(
        H,
        '<tool_call>{"name": "search", "arguments": {"q": "}\\"{ </tool_call>\\\\", "n": [[{}]]}}'
        "</tool_call>",
        ("", [("search", '{"q": "}\\"{ </tool_call>\\\\", "n": [[{}]]}')]),
        id="hermes: braces, quotes and tags in strings",
    ),
    pytest.param(
        H,
        '<tool_call>{"name": "sear\\u0063h", "arguments": {"q": "\\u4f60好\\ud83d\\ude42🙂"}}',
        ("", [("search", '{"q": "\\u4f60好\\ud83d\\ude42🙂"}')]),
        id="hermes: escapes are kept in arguments and read in names",
    ),
    pytest.param(
        H,
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}</tool_call> Done.',
        (" Done.", [WEATHER]),
        id="hermes: a brace missing",
    ),
    pytest.param(
        L,
        '{"name": "get_weather", "parameters": {"city": "Paris"}}',
        ("", [WEATHER]),
        id="llama",
    ),
    pytest.param(
        L,
        '\n\n{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}\n',
        ("", [WEATHER]),
        id="llama: with a type",
    ),
    pytest.param(
        L,
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
        ("", [WEATHER]),
        id="llama: after the tag",
    ),
    pytest.param(
        L,
        'I will ask. <|python_tag|>{"name": "now", "parameters": {}}; '
        '{"name": "get_weather", "arguments": {"city": "Paris"}};\n',
        ("I will ask.", [NOW, WEATHER]),
        id="llama: content, then two calls",
    ),
    pytest.param(
        L,
        '{"name": "now", "parameters": {}};<|python_tag|>{"name": "now", "parameters": {}}\n'
        '{"name": "now", "parameters": {}}',
        ("", [NOW, NOW, NOW]),
        id="llama: other ways to separate calls",
    ),
    pytest.param(
        L,
        '{"name": "now", "parameters": {}} is what I asked.',
        (" is what I asked.", [NOW]),
        id="llama: content after",
    ),
    pytest.param(
        M,
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}, '
        '{"name": "now", "arguments": {}, "id": "a1B2c3D4e"}]',
        ("", [WEATHER, NOW]),
        id="mistral",
    ),
    pytest.param(
        M,
        'Well: [TOOL_CALLS][\n{"name":"get_weather","arguments":{"city": "Paris"}}\n]\nSo.',
        ("Well:\nSo.", [WEATHER]),
        id="mistral: content around",
    ),
    pytest.param(
        M,
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]now[ARGS]{}',
        ("", [WEATHER, NOW]),
        id="mistral, newer",
    ),
    pytest.param(
        M,
        'Hm.[TOOL_CALLS] get_weather[CALL_ID]a1B2c3D4e[ARGS] {"city": "Paris"}',
        ("Hm.", [WEATHER]),
        id="mistral, newer: with an id",
    ),
]


@pytest.mark.parametrize(("layout", "text", "expected"), WHOLE)
def test_calls_are_told_from_content(
    layout: Layout, text: str, expected: tuple[str, list[tuple[str, str]]]
) -> None:
    read = read_reply(layout, text)
    assert (read.content, read.calls) == expected
    assert read == read_whole(layout, text)
    for _, arguments in read.calls:
        assert isinstance(json.loads(arguments), dict)


NO_CALLS = [
    (H, ""),
    (H, " \n"),
    (H, "Plain text, 1 < 2, <tool>, <tool_cal, </tool_call>. "),
    (H, "Write <tool_call> and {"),
    (H, "\n<tool_call>\n\n"),
    (H, '<tool_call>{"name": "unknown", "arguments": {"a": 1}}</tool_call>'),
    (H, '<tool_call>{"name": "get_weat'),
    (H, '<tool_call>{"name": "now"'),
    (H, '<tool_call>{"name": "now", "arguments": "{}"}</tool_call>'),
    (H, '<tool_call>{"name": ["now"], "arguments": {}}</tool_call>'),
    (H, '<tool_call>{"arguments": {"a": [1, }, "name": "now"}</tool_call>'),
    (H, '<tool_call>{"arguments": {}}</tool_call>'),
    (H, '<tool_call>{"arguments": ["a"], "name": "now"}</tool_call>'),
    (H, '<tool_call>{"name": "now", "name": "now", "arguments": {}}</tool_call>'),
    (H, '<tool_call>{"name" "now"}</tool_call>'),
    (H, "<tool_call>{}</tool_call>"),
    (H, "<tool_call>\n<function=now>\n</function>\n</tool_call>"),
    (L, '{"answer": 42, "name": "now"}'),
    (L, '{"name": "Ada", "parameters": {}}'),
    (L, "{"),
    (L, '  {"name" '),
    (L, 'Like {"name": "now", "parameters": {}}'),
    (L, "<|python_tag|>print(now())"),
    (L, '<|python_tag|>brave_search.call(query="now")'),
    (L, "<|python_ta"),
    (M, "[TOOL_CALLS]"),
    (M, "[TOOL_CALLS] []"),
    (M, "[TOOL_CALLS] now"),
    (M, "[TOOL_CALLS]now[ARGS]"),
    (M, "[TOOL_CALLS]now[ARGS][1]"),
    (M, "[TOOL_CALLS]unknown[ARGS]{}"),
    (M, '[TOOL_CALLS] [{"name": "unknown", "arguments": {}}]'),
    (M, "[INST] a[0] [TOOL_"),
]


@pytest.mark.parametrize(("layout", "text"), NO_CALLS)
def test_what_is_no_call_comes_out_as_it_is(layout: Layout, text: str) -> None:
    read = read_reply(layout, text)
    assert (read.content, read.calls) == (text, [])
    assert read == read_whole(layout, text)


BROKEN = [
    # Cut off by max_tokens.
    (H, '<tool_call>{"name": "now", "arguments": {"a": "b\\', ("", '{"a": "b\\')),
    (H, '<tool_call>{"name": "now", "arguments": {"a": tru', ("", '{"a": tru')),
    (H, '<tool_call>{"name": "now", "arguments": {"a": 1}', ("", '{"a": 1}')),
    (H, '<tool_call>{"name": "now", "arguments": {"a": 1}}\n</tool_c', ("\n</tool_c", '{"a": 1}')),
    (L, '{"name": "now", "parameters": {"a": ', ("", '{"a": ')),
    (M, '[TOOL_CALLS]now[ARGS]{"a', ("", '{"a')),
    (M, '[TOOL_CALLS] [{"name": "now", "arguments": {}}, ', ("", "{}")),
    (M, '[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"na', (', {"na', "{}")),
    # Not JSON.
    (H, '<tool_call>{"name": "now", "arguments": {"a": 01}} b', ("1}} b", '{"a": 0')),
    (H, '<tool_call>{"name": "now", "arguments": {"a": \'b\'}}', ("'b'}}", '{"a": ')),
    (H, '<tool_call>{"name": "now", "arguments": {"a": "b\nc"}}', ('\nc"}}', '{"a": "b')),
    (L, '{"name": "now", "parameters": {]}', ("]}", "{")),
    (M, "[TOOL_CALLS]now[ARGS]{,}", (",}", "{")),
    # No part of a call.
    (H, '<tool_call>{"name": "now", "arguments": {}, "x": 1}', (', "x": 1}', "{}")),
    (H, '<tool_call>{"name": "now", "arguments": {}}}</tool_call>', ("}</tool_call>", "{}")),
    (L, '{"name": "now", "parameters": {}}; and {}', ("; and {}", "{}")),
    (M, '[TOOL_CALLS] [{"name": "now", "arguments": {}} {}]', (" {}]", "{}")),
]


@pytest.mark.parametrize(("layout", "text", "expected"), BROKEN)
def test_a_call_that_breaks_off_loses_nothing(
    layout: Layout, text: str, expected: tuple[str, str]
) -> None:
    read = read_reply(layout, text)
    content, arguments = expected
    assert (read.content, read.calls) == (content, [("now", arguments)])
    assert read == read_whole(layout, text)


def test_calls_after_a_broken_one_are_read() -> None:
    text = (
        '<tool_call>{"name": "now", "arguments": {oops}}</tool_call>'
        '<tool_call>{"name": "unknown"}</tool_call><tool_call><tool_call>{"name": "now"}'
    )
    read = read_reply(H, text)
    assert read.calls == [("now", "{"), ("now", "{}")]
    assert read.content == 'oops}}</tool_call><tool_call>{"name": "unknown"}</tool_call><tool_call>'


def test_content_and_arguments_come_at_once() -> None:
    parser = parser_of(H)
    assert parser.push("Let me see") == [ContentText("Let me see")]
    assert parser.push(" <tool") == []
    assert parser.push("box> <tool_call>") == [ContentText(" <toolbox>")]
    assert parser.push('{"name": "now", "arguments": ') == []
    assert parser.push('{"a') == [CallStarted(0, "id0", "now"), CallArguments(0, '{"a')]
    assert parser.push('": "b c') == [CallArguments(0, '": "b c')]
    assert parser.push('"}') == [CallArguments(0, '"}')]
    assert parser.push("}</tool_call>") == []
    assert parser.num_calls == 1
    assert parser.finish() == []


def test_json_that_is_no_call_is_held_back_to_its_first_key_only() -> None:
    parser = parser_of(L)
    assert parser.push('{"answer') == []
    assert parser.push('": ') == [ContentText('{"answer":')]
    assert parser.push("[1, 2") == [ContentText(" [1, 2")]


ONE_CALL = [
    (H, '<tool_call>{"name": "now", "arguments": {}}', "</tool_call>\n<tool_call>"),
    (L, '{"name": "now", "parameters": {}}', '; {"name": "now", "parameters": {}}'),
    (M, '[TOOL_CALLS] [{"name": "now", "arguments": {}}', ', {"name": "now", "arguments": {}}]'),
    (M, "[TOOL_CALLS]now[ARGS]{}", "[TOOL_CALLS]now[ARGS]{}"),
]


@pytest.mark.parametrize(("layout", "call", "more"), ONE_CALL)
def test_a_reply_of_one_call_is_done_with_its_last_character(
    layout: Layout, call: str, more: str
) -> None:
    parser = parser_of(layout, max_calls=1)
    events = []
    for character in "Hm " * (layout is not L) + call:
        assert not parser.is_done
        events += parser.push(character)
    assert parser.is_done
    assert parser.push(more) == []
    assert parser.finish() == []
    assert put_together(events).calls == [NOW]
    assert parser.num_calls == 1

    at_once = parser_of(layout, max_calls=1)
    assert put_together(at_once.push(call + more) + at_once.finish()).calls == [NOW]
    assert at_once.is_done
