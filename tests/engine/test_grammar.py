"""Grammars: whatever is drawn under a mask conforms, and no question changes another's answer."""

import asyncio
import json
import random
import re
import threading
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships none
import llguidance
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

import engine.grammar
from engine.errors import EngineFull, GrammarError
from engine.grammar import GrammarCompiler, GrammarCursor
from engine.grammars.cursor import CompiledGrammar
from engine.grammars.source import to_llguidance
from engine.request import GrammarSpec
from tests.tiny_tokenizer import byte_fallback_tokenizer, byte_level_tokenizer, metaspace_tokenizer

SPECIAL = (0, 1, 2)
EOS = 1
PADDING = 5
"""Rows of the model beyond the tokenizer's."""

TREE = r"""
root  ::= node
node  ::= "(" label (" " node)* ")"   # a tree
label ::= [a-c]{1,2} | "\u00e9"
"""


@dataclass(frozen=True)
class Model:
    """A tokenizer and what a compiler must know of its model."""

    folder: Path
    tokenizer: PreTrainedTokenizerFast
    vocab_size: int

    def compiler(self, eos: frozenset[int] = frozenset({EOS})) -> GrammarCompiler:
        return GrammarCompiler(self.folder, self.vocab_size, eos)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: list[int]) -> str:
        # Behind a token, as an answer is behind its prompt: a leading space counts.
        return str(self.tokenizer.decode([*self.encode("a"), *tokens]))[1:]


def _save(tokenizer: PreTrainedTokenizerFast, folder: Path, padding: int = PADDING) -> Model:
    tokenizer.save_pretrained(folder)
    return Model(folder, tokenizer, len(tokenizer) + padding)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return _save(byte_level_tokenizer(), tmp_path_factory.mktemp("byte_level"))


@pytest.fixture(scope="module", params=["byte_level", "byte_fallback"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    made = {"byte_level": byte_level_tokenizer, "byte_fallback": byte_fallback_tokenizer}
    return _save(made[request.param](), tmp_path_factory.mktemp(request.param))


def _json(schema: object) -> GrammarSpec:
    return GrammarSpec("json_schema", json.dumps(schema))


def _allowed(cursor: GrammarCursor, output: list[int]) -> list[int]:
    mask = cursor.mask(output)
    return [] if mask is None else [int(token) for token in mask.nonzero().flatten()]


def _walk(model: Model, cursor: GrammarCursor, seed: int, limit: int = 300) -> list[int] | None:
    """Tokens drawn under the mask, without EOS; None where the limit came first."""
    rng = random.Random(seed)
    closers = {model.tokenizer.convert_tokens_to_ids(char) for char in '"}])'}
    output: list[int] = []
    while len(output) < limit:
        allowed = _allowed(cursor, output)
        assert allowed
        closing = [token for token in allowed if token in closers or token == EOS]
        # Else strings and lists would have no end.
        token = rng.choice(closing if closing and rng.random() < 0.4 else allowed)
        if token == EOS:
            return output
        output.append(token)
    return None


def _walks(model: Model, spec: GrammarSpec, count: int = 12) -> list[str]:
    cursor = model.compiler().cursor(spec)
    found = [walk for seed in range(count) if (walk := _walk(model, cursor, seed)) is not None]
    assert len(found) > count // 3
    return [model.decode(walk) for walk in found]


def _accepts(model: Model, cursor: GrammarCursor, text: str) -> bool:
    tokens = [*model.encode(text), EOS]
    return cursor.valid_len([], tokens) == len(tokens)


SCHEMAS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    # name: schema, valid instances, invalid ones
    "length": ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "é好a"], ["a", "abcd"]),
    "range": ({"type": "integer", "minimum": 10, "maximum": 20}, [10, 20], [9, 21, 100]),
    "exclusive": (
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        [0.5],
        [0, 1, -1],
    ),
    "multiple": ({"type": "integer", "multipleOf": 5}, [0, 15], [3]),
    "pattern": ({"type": "string", "pattern": "^[a-c]+$"}, ["cab"], ["", "d"]),
    "pattern inside": ({"type": "string", "pattern": "b", "maxLength": 9}, ["abc"], ["aac"]),
    "format": ({"type": "string", "format": "date"}, ["2020-01-31"], ["2020-1-31"]),
    "enum": ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2]),
    "const": ({"const": {"a": 'b"c\n'}}, [{"a": 'b"c\n'}], [{"a": "b"}]),
    "anyOf": (
        {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]},
        [1, "ab"],
        ["abc", True],
    ),
    "oneOf": ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, [1, True], ["x"]),
    "allOf": (
        {"allOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 9}]},
        [5, 9],
        [4, 10],
    ),
    "type list": ({"type": ["integer", "null"]}, [1, None], ["x"]),
    "closed object": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},
            "required": ["a"],
            "additionalProperties": False,
        },
        [{"a": 1}, {"a": 1, "b": True}],
        [{}, {"b": True}, {"a": "x"}, {"a": 1, "c": 1}],
    ),
    "open object": (
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        [{"a": 1, "b": [2]}, {"z": None}],
        [{"a": "x"}, {"a": "x", "b": 1}],
    ),
    "map": (
        {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
        [{}, {"b": 1}],
        [{"b": "x"}, {"a": 1, "b": 2, "c": 3}],
    ),
    "patternProperties": (
        {"patternProperties": {"^s": {"type": "null"}}, "additionalProperties": False},
        [{"sa": None}],
        [{"sa": 1}, {"b": None}],
    ),
    "array": (
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
        [[1, 2], [1, 2, 3]],
        [[1], [1, 2, 3, 4], [1, "x"]],
    ),
    "tuple": (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "a"}], "items": False},
        [[1, "a"]],
        [["a", 1], [1, "a", 2]],
    ),
    "recursive": (
        {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "v": {"type": "integer"},
                        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                    },
                    "required": ["v"],
                    "additionalProperties": False,
                }
            },
            "$ref": "#/$defs/node",
        },
        [{"v": 1}, {"v": 1, "next": {"v": 2, "next": None}}],
        [{"v": 1, "next": {}}, {"v": "1"}],
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_honoured(byte_level: Model, name: str) -> None:
    schema, valid, invalid = SCHEMAS[name]
    cursor = byte_level.compiler().cursor(_json(schema))
    for instance in valid:
        assert _accepts(byte_level, cursor, json.dumps(instance, ensure_ascii=False)), instance
    for instance in invalid:
        assert not _accepts(byte_level, cursor, json.dumps(instance, ensure_ascii=False)), instance


@pytest.mark.parametrize("name", SCHEMAS)
def test_whatever_is_drawn_is_an_instance(model: Model, name: str) -> None:
    schema = SCHEMAS[name][0]
    validator = jsonschema.Draft202012Validator(schema)
    for text in _walks(model, _json(schema), count=6):
        validator.validate(json.loads(text))


def test_json_object_gives_objects(model: Model) -> None:
    for text in _walks(model, GrammarSpec("json_object")):
        assert isinstance(json.loads(text), dict)


def test_whitespace_has_bounds(byte_level: Model) -> None:
    cursor = byte_level.compiler().cursor(GrammarSpec("json_object"))
    assert _accepts(byte_level, cursor, json.dumps({"a": [1, {"b": 2}]}, indent=4))
    assert not _accepts(byte_level, cursor, '{"a":' + " " * 5 + "1}")
    assert not _accepts(byte_level, cursor, '{"a":\n\n1}')
    assert not _accepts(byte_level, cursor, '{"a":1}\n')


def test_no_escape_hides_a_property(byte_level: Model) -> None:
    cursor = byte_level.compiler().cursor(_json(SCHEMAS["open object"][0]))
    assert not _accepts(byte_level, cursor, r'{"\u0061":"x"}')
    assert not _accepts(byte_level, cursor, '{"a":1,"a":"x"}')


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("uniqueItems", {"type": "array", "uniqueItems": True}),
        ("not", {"properties": {"a": {"not": {"type": "null"}}}}),
        ("if", {"anyOf": [{"if": {}, "then": False}]}),
        ("contains", {"type": "array", "items": {"type": "array", "contains": {}}}),
        ("propertyNames", {"$defs": {"x": {"propertyNames": {"maxLength": 2}}}}),
        ("dependentRequired", {"dependentRequired": {"a": ["b"]}}),
        ("unevaluatedProperties", {"prefixItems": [{"unevaluatedProperties": False}]}),
        ("$dynamicRef", {"additionalProperties": {"$dynamicRef": "#x"}}),
        ("nullable", {"type": "string", "nullable": True}),
        ("x-guidance", {"x-guidance": {"lenient": True}}),
        ("minProperties", {"minProperties": 2}),
        ("oneOf", {"oneOf": [{"minimum": 3}, {"maximum": 5}]}),
        ("format", {"type": "string", "format": "colour"}),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(
    byte_level: Model, keyword: str, schema: dict[str, Any]
) -> None:
    with pytest.raises(GrammarError, match=re.escape(keyword)):
        byte_level.compiler().compile(_json(schema))


def test_names_and_annotations_are_no_keywords(byte_level: Model) -> None:
    schema = {
        "title": "T",
        "description": "d",
        "default": {"not": 1},
        "examples": [{"if": 1}],
        "properties": {"not": {"const": {"nullable": 1}}, "uniqueItems": {"enum": [{"if": 1}]}},
        "minProperties": 2,
        "required": ["not", "uniqueItems"],
    }
    byte_level.compiler().compile(_json(schema))


REGEXES = [
    r"[A-Z][a-z]{1,5} [0-9]{1,3}(\.[0-9]+)?",
    r"(yes|no)(, because .{2,6})?",
    r"(a|ab)(c|bcd)*",
    r"^[a-c.]{1,3}$",
    r"é*[好你]|[^\x00-\x7f]{3}",
    r"(?i)path/to|x",
]


@pytest.mark.parametrize("pattern", REGEXES)
def test_the_whole_answer_matches_a_regex(model: Model, pattern: str) -> None:
    for text in _walks(model, GrammarSpec("regex", pattern)):
        assert re.fullmatch(pattern, text), text


def test_a_choice_is_one_of_its_strings(model: Model) -> None:
    choices = ["a", "ab", "ab.c", "é好", 'x"y/\\z', " the a", "\n"]
    spec = GrammarSpec("choice", json.dumps(choices))
    assert set(_walks(model, spec, count=60)) <= set(choices)
    cursor = model.compiler().cursor(spec)
    for choice in choices:
        tokens = [token for char in choice for token in _single(model, char)]
        assert cursor.valid_len([], [*tokens, EOS]) == len(tokens) + 1, choice


def _single(model: Model, char: str) -> list[int]:
    """`char` in single bytes, which both kinds of tokenizer have."""
    names = [f"<0x{byte:02X}>" for byte in char.encode()]
    vocab = model.tokenizer.get_vocab()
    return [vocab[name] for name in names] if names[0] in vocab else model.encode(char)


def _is_tree(text: str) -> bool:
    inner = re.sub(r"\(([a-c]{1,2}|é)( T)*\)", "T", text)
    return text == "T" or (inner != text and _is_tree(inner))


def test_gbnf(model: Model) -> None:
    for text in _walks(model, GrammarSpec("grammar", TREE)):
        assert _is_tree(text), text


def test_gbnf_syntax(byte_level: Model) -> None:
    source = r"""# all of it
root ::= first-rule (", " [^a-c\]\x41\n] .)? |
    "[" [-+] [a\-z] "\"\\\u00e9\U0001F642" "]"
first-rule ::= "x"{2} "y"{1,} ("z"?)* "" | | ab{0,2}
ab ::= ("a" |
  "b")+
"""
    cursor = byte_level.compiler().cursor(GrammarSpec("grammar", source))
    for text in ("xxy", "xxyyz", "", "abba", "xxy, dA", "xxy, -\n", '[+-"\\é🙂]', '[-z"\\é🙂]'):
        assert _accepts(byte_level, cursor, text), text
    for text in ("x", "xx", "xxy, ax", "xxy, Ax", "xxy, ]x", '[+b"\\é🙂]', "xxy, d"):
        assert not _accepts(byte_level, cursor, text), text


BAD = [
    ("json_schema", "", "not JSON"),
    ("json_schema", "true", "object"),
    ("json_schema", "[1]", "object"),
    ("json_schema", '{"type": "strin"}', "strin"),
    ("json_schema", '{"minimum": NaN}', "not JSON"),
    ("json_schema", '{"const": "\\ud83d"}', "json_schema"),
    ("json_schema", '{"$ref": "#/nowhere"}', "nowhere"),
    ("json_schema", '{"$ref": "http://localhost/x"}', "localhost"),
    ("json_schema", '{"$ref": "#"}', "go on"),
    ("json_schema", '{"type": "integer", "minimum": 2, "maximum": 1}', "minimum"),
    ("json_schema", '{"pattern": "(?=a)"}', "regex"),
    ("json_schema", '{"items": ' * 300 + "{}" + "}" * 300, "recursion"),
    ("json_schema", '{"items": ' * 10_000 + "{}" + "}" * 10_000, "deep"),
    ("json_schema", json.dumps({"properties": {f"p{i}": {} for i in range(201)}}), "200"),
    ("json_schema", json.dumps({"required": list(map(str, range(201)))}), "200"),
    ("json_schema", json.dumps({"patternProperties": {f"^{i}": {} for i in range(51)}}), "50"),
    ("json_schema", json.dumps({"anyOf": [{"pattern": "a?" * 9}] * 300}), "patterns"),
    ("json_schema", json.dumps({"anyOf": [{"type": "null"}] * 5_000}), "subschemas"),
    ("json_schema", " " * 500_001, "at most 500000"),
    ("regex", "(", "regex"),
    ("regex", r"(a)\1", "regex"),
    ("regex", r"\bx", "lookaround"),
    ("regex", "(" * 2_000 + ")" * 2_000, "regex"),
    ("regex", "a?" * 20_000, "at most 5000"),
    ("regex", "\ud83d", "surrogate"),
    ("regex", "[^\\x00-\\x{10FFFF}]", "regex"),
    ("choice", "[]", "at least one"),
    ("choice", '"a"', "list"),
    ("choice", '["a", ""]', "non-empty"),
    ("choice", '["a", 1]', "strings"),
    ("choice", '["\\ud83d"]', "surrogate"),
    ("grammar", "", "root"),
    ("grammar", 'start: "a"', "line 1"),
    ("grammar", 'root ::= "a" <think>', "line 1"),
    ("grammar", "root ::= x\n", "'x'"),
    ("grammar", 'root ::= "a"\nroot ::= "b"', "line 2"),
    ("grammar", "root ::= root", "go on"),
    ("grammar", "root ::= [z-a]", "range"),
    ("grammar", r'root ::= "\ud83d"', "ud83d"),
    ("grammar", r'root ::= "\q"', "escape"),
    ("grammar", 'root ::= ("a"', "grammar"),
    ("grammar", "root ::= " + "(" * 4_000, "nested"),
    ("grammar", "root ::= " + '"a"' * 5_001, "5000"),
]


@pytest.mark.parametrize(("kind", "source", "why"), BAD, ids=range(len(BAD)))
def test_a_bad_spec_is_told_in_one_line(
    byte_level: Model, kind: Any, source: str, why: str
) -> None:
    compiler = byte_level.compiler()
    for _ in range(2):  # the second time as well
        with pytest.raises(GrammarError, match=re.escape(why)) as caught:
            compiler.compile(GrammarSpec(kind, source))
        message = str(caught.value)
        assert "\n" not in message
        assert len(message) < 300


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1,5000}){1,5000}",
        "((((a*)*)*)*)*b",
        "(a|b)*a(a|b){50}",
        "a\0b",
        ".{1,100000}",
        "a" * 4999,
    ],
)
def test_a_nasty_regex_does_no_harm(byte_level: Model, pattern: str) -> None:
    cursor = byte_level.compiler().cursor(GrammarSpec("regex", pattern))
    token = byte_level.encode("a")[0]
    assert cursor.valid_len([], [token] * 40) == (1 if "\0" in pattern else 40)


def _links(count: int) -> dict[str, Any]:
    ref = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(count)}
    return {"$defs": {**ref, f"d{count}": {}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "spec",
    [
        _json(_links(2_400)),
        GrammarSpec(
            "grammar",
            "root ::= r0\n"
            + "".join(f"r{i} ::= r{i + 1}\n" for i in range(1_600))
            + 'r1600 ::= "a" | "(" root ")"',
        ),
    ],
    ids=["references", "rules"],
)
def test_long_chains_do_not_kill_the_process(byte_level: Model, spec: GrammarSpec) -> None:
    cursor = byte_level.compiler().cursor(spec)
    assert cursor.mask([]) is not None


@pytest.mark.parametrize("eos", [(), (1,), (1, 2, 40)], ids=["0", "1", "3"])
def test_where_it_may_end_every_eos_is_allowed(byte_level: Model, eos: tuple[int, ...]) -> None:
    cursor = byte_level.compiler(frozenset(eos)).cursor(GrammarSpec("regex", "ab?"))
    a, b = byte_level.encode("a")[0], byte_level.encode("b")[0]
    assert 40 not in (a, b)
    assert [_allowed(cursor, output) for output in ([], [a])] == [[a], sorted([*eos, b])]
    assert [cursor.has_ended(output) for output in ([], [a], [a, b])] == [False, False, True]
    end = cursor.mask([a, b])
    assert end is None if not eos else _allowed(cursor, [a, b]) == sorted(eos)
    for token in eos:
        assert cursor.mask([a, b, token]) is None
        assert cursor.has_ended([a, token])
        assert cursor.valid_len([a], [token, b]) == 1
        assert cursor.valid_len([], [token]) == 0
        with pytest.raises(GrammarError):
            cursor.mask([token])
        with pytest.raises(GrammarError):
            cursor.mask([a, token, b])


def test_free_text_has_no_special_tokens_and_no_padding(model: Model) -> None:
    ordinary_eos = model.encode("c")[-1]
    eos = frozenset({EOS, ordinary_eos})
    cursor = model.compiler(eos).cursor(GrammarSpec("regex", "(?s:.)*c"))
    mask = cursor.mask([])
    assert mask is not None
    assert mask.dtype == torch.bool
    assert mask.shape == (model.vocab_size,)
    assert not mask[list(SPECIAL)].any()
    assert not mask[-PADDING:].any()
    assert not mask[ordinary_eos]
    for token in (*SPECIAL, model.vocab_size - 1, model.vocab_size, model.vocab_size + 7):
        assert cursor.valid_len([], [token]) == 0
        assert cursor.valid_len([], [*model.encode("a"), token]) == len(model.encode("a"))


def test_a_model_may_have_fewer_rows_than_the_tokenizer(byte_level: Model) -> None:
    narrow = Model(byte_level.folder, byte_level.tokenizer, len(byte_level.tokenizer) - 30)
    mask = narrow.compiler().cursor(GrammarSpec("regex", "(?s:.)*")).mask([])
    assert mask is not None
    assert mask.shape == (narrow.vocab_size,)
    assert mask[-1]


def test_a_grammar_that_no_token_can_write_is_refused(byte_level: Model) -> None:
    # The one token that is "x" ends sequences.
    compiler = byte_level.compiler(frozenset(byte_level.encode("x")))
    with pytest.raises(GrammarError, match="no token"):
        compiler.compile(GrammarSpec("regex", "x"))


async def test_preparing_waits_beside_the_event_loop_and_is_bounded(
    byte_level: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = byte_level.compiler()
    gate = threading.Event()
    compiled: list[str] = []

    def slow(spec: GrammarSpec) -> CompiledGrammar:
        assert gate.wait(60)
        compiled.append(spec.source)
        return compile_now(spec)

    compile_now = compiler._compile
    monkeypatch.setattr(compiler, "_compile", slow)
    monkeypatch.setattr(engine.grammar, "_MOST_PENDING", 3)
    waiting = [
        asyncio.create_task(compiler.prepare(GrammarSpec("regex", source))) for source in "abcc"
    ]
    await asyncio.sleep(0)
    with pytest.raises(EngineFull, match="3 grammars are waiting"):
        await compiler.prepare(GrammarSpec("regex", "d"))
    waiting[2].cancel()
    gate.set()
    await asyncio.gather(waiting[0], waiting[1], waiting[3])
    assert waiting[2].cancelled()
    assert compiled == ["a", "b", "c"], "each once, and the one that was given up by one of two too"
    await compiler.prepare(GrammarSpec("regex", "d"))


async def test_preparing_tells_what_is_wrong_every_time(byte_level: Model) -> None:
    compiler = byte_level.compiler()
    for _ in range(2):
        with pytest.raises(GrammarError, match="regex"):
            await compiler.prepare(GrammarSpec("regex", "("))


def test_a_tokenizer_that_hides_its_bytes_is_refused(tmp_path: Path) -> None:
    model = _save(metaspace_tokenizer(), tmp_path)
    with pytest.raises(GrammarError, match="tokenizer"):
        model.compiler().compile(GrammarSpec("json_object"))


def test_limits_of_the_library_are_errors_of_one_question(
    byte_level: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = llguidance.LLParserLimits(step_max_items=200, verbose_errors=False)
    monkeypatch.setattr(engine.grammar, "_LIMITS", limits)
    source = 'root ::= s\ns ::= "b" | "a" s | s s | s s s'
    cursor = byte_level.compiler().cursor(GrammarSpec("grammar", source))
    a, b = byte_level.encode("a")[0], byte_level.encode("b")[0]
    before = cursor.mask([a])
    with pytest.raises(GrammarError, match="complex"):
        cursor.mask([a, *[b] * 40])
    assert cursor.valid_len([a], [b]) == 1
    after = cursor.mask([a])
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)
    assert not cursor.has_ended([a, *[b] * 40])
    # The masks are too much there, the text itself is not.
    assert cursor.valid_len([a, *[b] * 40], [b]) == 1


def _spend(cursor: GrammarCursor, token: int) -> None:
    """Go on until the lexer gives up."""
    texts = ([token] * count for count in range(200))
    with pytest.raises(GrammarError, match="too complex"):
        deque(map(cursor.mask, texts), maxlen=0)


def test_what_is_too_complex_for_one_leaves_the_others(
    byte_level: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursors of a grammar share a lexer: what one spends of it is no other's fault."""
    limits = llguidance.LLParserLimits(max_lexer_states=600, verbose_errors=False)
    monkeypatch.setattr(engine.grammar, "_LIMITS", limits)
    compiler = byte_level.compiler()
    spec = GrammarSpec("regex", r"(\w{1,40}\s?){1,40}")
    a = byte_level.encode("a")[0]
    neighbour = compiler.cursor(spec)
    first, later = neighbour.mask([]), neighbour.mask([a, a])
    _spend(compiler.cursor(spec), a)
    assert first is not None
    assert later is not None
    for cursor in (neighbour, compiler.cursor(spec)):
        assert cursor.valid_len([a], [a] * 5) == 5
        assert not cursor.has_ended([a, a])
        for output, before in (([], first), ([a, a], later)):
            after = cursor.mask(output)
            assert after is not None
            assert torch.equal(before, after)


def test_a_lexer_spent_by_others_is_no_reason_to_fail(
    byte_level: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = llguidance.LLParserLimits(max_lexer_states=600, verbose_errors=False)
    monkeypatch.setattr(engine.grammar, "_LIMITS", limits)
    compiler = byte_level.compiler()
    spec = GrammarSpec("regex", r"(\w{1,40}\s?){1,40}")
    letter, space = byte_level.encode("a ")
    for pattern in range(64):
        ends = [space if pattern >> bit & 1 else letter for bit in range(6)]
        text = [token for end in ends for token in (letter, end)]
        assert compiler.cursor(spec).mask(text) is not None


SPECS = (
    GrammarSpec("json_object"),
    _json(SCHEMAS["recursive"][0]),
    GrammarSpec("regex", "(a|bc){0,6}(, .{1,4})?"),
    GrammarSpec("choice", '["a", "ab", "the dog"]'),
    GrammarSpec("grammar", TREE),
)


@cache
def _shared_model() -> tuple[Model, GrammarCompiler, TemporaryDirectory[str]]:
    # Hypothesis wants no fixtures of a module for its examples.
    folder = TemporaryDirectory()
    model = _save(byte_level_tokenizer(), Path(folder.name))
    return model, model.compiler(), folder


@st.composite
def _questions(draw: st.DrawFn) -> tuple[GrammarSpec, list[tuple[str, list[int], list[int]]]]:
    """A grammar, and (method, output, draft) questions about beginnings of walks, or near them."""
    model, compiler, _ = _shared_model()
    spec = draw(st.sampled_from(SPECS))
    cursor = compiler.cursor(spec)
    seeds = draw(st.lists(st.integers(0, 10_000), min_size=1, max_size=3))
    walks = [walk for seed in seeds if (walk := _walk(model, cursor, seed, limit=60))] or [[40]]
    questions = []
    for _ in range(draw(st.integers(2, 12))):
        walk = [*draw(st.sampled_from(walks)), EOS]
        cut = draw(st.integers(0, len(walk)))
        stray = draw(st.lists(st.integers(0, model.vocab_size + 1), max_size=2))
        method = draw(st.sampled_from(("mask", "valid_len", "has_ended")))
        output = walk[:cut] + (stray if draw(st.booleans()) else [])
        questions.append((method, output, walk[cut : cut + 5] + stray))
    return spec, questions


def _ask(cursor: GrammarCursor, method: str, output: list[int], draft: list[int]) -> object:
    if method == "valid_len":
        return cursor.valid_len(tuple(output), tuple(draft))
    if method == "has_ended":
        return cursor.has_ended(output)
    try:
        mask = cursor.mask(output)
    except GrammarError:
        return "error"
    return None if mask is None else mask.tolist()


@settings(max_examples=60, deadline=None)
@given(_questions())
def test_no_question_changes_another(
    case: tuple[GrammarSpec, list[tuple[str, list[int], list[int]]]],
) -> None:
    spec, questions = case
    _, compiler, _ = _shared_model()
    cursor = compiler.cursor(spec)
    for question in questions:
        assert _ask(cursor, *question) == _ask(compiler.cursor(spec), *question)


@settings(max_examples=40, deadline=None)
@given(_questions())
def test_valid_len_is_what_the_masks_say(
    case: tuple[GrammarSpec, list[tuple[str, list[int], list[int]]]],
) -> None:
    spec, questions = case
    _, compiler, _ = _shared_model()
    cursor = compiler.cursor(spec)
    for _, output, draft in questions:
        assert cursor.valid_len(output, draft) == _slow_valid_len(compiler, spec, output, draft)


def _slow_valid_len(
    compiler: GrammarCompiler, spec: GrammarSpec, output: list[int], draft: list[int]
) -> int:
    for count, token in enumerate(draft):
        try:
            allowed = _allowed(compiler.cursor(spec), [*output, *draft[:count]])
        except GrammarError:
            return count
        if token not in allowed:
            return count
    return len(draft)


def test_a_mask_stays_what_it_was(byte_level: Model) -> None:
    cursor = byte_level.compiler().cursor(GrammarSpec("regex", "ab"))
    a = byte_level.encode("a")[0]
    first = cursor.mask([])
    assert first is not None
    before = first.clone()
    cursor.mask([a])
    assert torch.equal(first, before)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[GrammarSpec]:
    """The specs that were compiled, in order."""
    specs: list[GrammarSpec] = []

    def noted(spec: GrammarSpec) -> str:
        specs.append(spec)
        return to_llguidance(spec)

    monkeypatch.setattr("engine.grammar.to_llguidance", noted)
    return specs


def test_equal_specs_share_one_compile(byte_level: Model, compiled: list[GrammarSpec]) -> None:
    compiler = byte_level.compiler()
    a = byte_level.encode("a")[0]
    gate = threading.Barrier(8)
    answers: list[list[int]] = []

    def work(index: int) -> None:
        gate.wait()
        compiler.compile(GrammarSpec("regex", "a+"))
        cursor = compiler.cursor(GrammarSpec("regex", f"a{{{index % 4 + 1}}}"))
        answers.append([cursor.valid_len([], [a] * 9), index % 4 + 1])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert all(got == expected for got, expected in answers)
    assert len(compiled) == len(set(compiled)) == 5


def test_the_latest_grammars_are_kept(
    byte_level: Model, compiled: list[GrammarSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.grammar, "_KEPT_GRAMMARS", 2)
    compiler = byte_level.compiler()
    for pattern in ("a", "b", "a", "c", "a", "b"):
        compiler.compile(GrammarSpec("regex", pattern))
    assert [spec.source for spec in compiled] == ["a", "b", "c", "b"]
