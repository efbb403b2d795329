r"""GBNF, the EBNF dialect of llama.cpp, into the Lark dialect of llguidance.

    root   ::= "yes" | "no" (", " reason)?   # it starts at `root`
    reason ::= word (" " word){0,20}
    word   ::= [^ \n\x00-\x1f]+

Literals and sets know the escapes \n \r \t \" \\ \[ \] \- \xHH \uHHHH \UHHHHHHHH; `.` is any
character; repetitions are * + ? {m} {m,} {m,n}. There are no references to tokens.

A rule that no recursion is reached from becomes one regular expression. What is left goes to an
Earley parser whose tokens are those expressions, literals and sets. Each takes all it can: where
a word is [a-z]+, no "z" can follow it, and "ab" is not read as "a" and "b" where both fit. So some
text of the grammar may not be offered; all that is offered conforms. A set that is repeated inside
a recursive rule is read character by character, which is exact but slow: give it its own rule.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from engine.errors import GrammarError

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
    |(?P<define>::=)
    |(?P<name>[A-Za-z0-9_-]+)
    |(?P<literal>"(?:[^"\\\n]|\\.)*")
    |(?P<set>\[\^?(?:[^\]\\]|\\.)*\])
    |(?P<any>\.)
    |(?P<operator>[()|*+?]|\{[ ]*[0-9]+[ ]*(?:,[ ]*[0-9]*[ ]*)?\})""",
    re.VERBOSE,
)
_CHARACTER = re.compile(
    r"""\\x(?P<x>[0-9A-Fa-f]{2})|\\u(?P<u>[0-9A-Fa-f]{4})|\\U(?P<U>[0-9A-Fa-f]{8})
    |\\(?P<short>[nrt"\\\[\]-])|(?P<plain>[^\\])""",
    re.VERBOSE | re.DOTALL,
)
_MAX_TOKENS = 5_000
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


@dataclass(slots=True)
class _Rule:
    name: str
    line: int
    body: list[_Token] = field(default_factory=list)


def to_lark(source: str) -> str:
    """The same grammar for llguidance. Raises GrammarError, with the line, where it isn't GBNF."""
    rules = _read_rules(source)
    if "root" not in rules:
        raise GrammarError("grammar has no rule 'root'")
    terminals = _terminals(rules)
    # Case tells terminals (regular expressions) from rules.
    lark_names = {
        name: f"T{index}" if name in terminals else f"r{index}" for index, name in enumerate(rules)
    }
    lines = [f"start: {lark_names['root']}"]
    for rule in rules.values():
        body = " ".join(_lark_token(token, lark_names) for token in rule.body)
        lines.append(f"{lark_names[rule.name]}: {body}")
    return "\n".join(lines)


def _read_rules(source: str) -> dict[str, _Rule]:
    rules: dict[str, _Rule] = {}
    rule: _Rule | None = None
    tokens = list(islice(_tokens(source), _MAX_TOKENS + 1))
    if len(tokens) > _MAX_TOKENS:
        raise GrammarError(f"grammar has more than {_MAX_TOKENS} names, literals and signs")
    starts = {i - 1 for i, token in enumerate(tokens) if token.kind == "define"}
    for i, token in enumerate(tokens):
        if i in starts and token.kind == "name":
            if token.text in rules:
                raise GrammarError(f"grammar line {token.line}: second rule {token.text!r}")
            rule = rules[token.text] = _Rule(token.text, token.line)
        elif token.kind == "define":
            if i - 1 not in starts or i == 0 or tokens[i - 1].kind != "name":
                raise GrammarError(f"grammar line {token.line}: '::=' without a name before it")
        elif rule is None:
            raise GrammarError(f"grammar line {token.line}: expected a rule, name ::= ...")
        else:
            rule.body.append(token)
    for rule in rules.values():
        for token in rule.body:
            if token.kind == "name" and token.text not in rules:
                raise GrammarError(f"grammar line {token.line}: no rule {token.text!r}")
    return rules


def _tokens(source: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise GrammarError(f"grammar line {line}: can't read {source[position:][:20]!r}")
        if match.lastgroup != "space":
            yield _Token(match.lastgroup or "", match.group(), line)
        line += match.group().count("\n")
        position = match.end()


def _terminals(rules: dict[str, _Rule]) -> set[str]:
    """Rules that lead to no recursion: those whose names are all of such rules."""
    names_in = {
        name: {token.text for token in rule.body if token.kind == "name"}
        for name, rule in rules.items()
    }
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, used in names_in.items():
        for other in used:
            users[other].append(name)
    found = {name for name, used in names_in.items() if not used}
    news = list(found)
    while news:
        done = news.pop()
        for user in users[done]:
            names_in[user].discard(done)
            if not names_in[user] and user not in found:
                found.add(user)
                news.append(user)
    return found


def _lark_token(token: _Token, lark_names: dict[str, str]) -> str:
    match token.kind:
        case "name":
            return lark_names[token.text]
        case "literal":
            text = "".join(char for char, _ in _characters(token.text[1:-1], token.line))
            return json.dumps(text, ensure_ascii=False)
        case "set":
            return _lark_set(token)
        case "any":
            return "/(?s:.)/"
        case _:
            return token.text.replace(" ", "")


def _lark_set(token: _Token) -> str:
    body = token.text[1:-1]
    negated = body.startswith("^")
    chars = list(_characters(body[negated:], token.line))
    if not chars:
        raise GrammarError(f"grammar line {token.line}: empty set {token.text}")
    parts: list[str] = []
    i = 0
    while i < len(chars):
        low = high = chars[i][0]
        if i + 2 < len(chars) and chars[i + 1] == ("-", False):
            high = chars[i + 2][0]
            i += 2
        if high < low:
            raise GrammarError(f"grammar line {token.line}: empty range in {token.text}")
        parts.append(rf"\u{{{ord(low):X}}}-\u{{{ord(high):X}}}")
        i += 1
    return f"/[{'^' * negated}{''.join(parts)}]/"


def _characters(text: str, line: int) -> Iterator[tuple[str, bool]]:
    """Each character, and whether it was written with a backslash."""
    position = 0
    while position < len(text):
        match = _CHARACTER.match(text, position)
        if match is None:
            raise GrammarError(f"grammar line {line}: bad escape {text[position:][:10]!r}")
        found = match[match.lastgroup or ""]
        position = match.end()
        match match.lastgroup:
            case "plain":
                yield found, False
            case "short":
                yield _SHORT.get(found, found), True
            case _:
                code = int(found, 16)
                if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                    raise GrammarError(f"grammar line {line}: no character {match.group()}")
                yield chr(code), True
