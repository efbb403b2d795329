"""A GrammarSpec -> the text that llguidance compiles."""

import json
from typing import Any

import llguidance

from engine.errors import GrammarError
from engine.grammars.gbnf import to_lark
from engine.grammars.json_schema import read_json, read_schema
from engine.request import GrammarSpec

_MAX_CHARS = {
    "json_object": 0,
    "json_schema": 500_000,
    "regex": 5_000,
    "choice": 500_000,
    "grammar": 50_000,
}
"""With the limits of `json_schema.py` and `gbnf.py`: nothing takes much more than a second."""

_START = 'start: @answer\n%llguidance {"no_forcing": true}'
"""Where only one text can follow, llguidance would allow only one of its tokenisations; a mask
then says less than the grammar does, and depends on the token before."""


def to_llguidance(spec: GrammarSpec) -> str:
    """Raises GrammarError for what is not well-formed or can't be honoured."""
    limit = _MAX_CHARS[spec.kind]
    if len(spec.source) > limit:
        raise GrammarError(
            f"{spec.kind} must have at most {limit} characters, got {len(spec.source)}"
        )
    _require_unicode(spec.source)
    answer = {"name": "answer", **_answer(spec)}
    try:
        return json.dumps({"grammars": [{"lark_grammar": _START}, answer]}, allow_nan=False)
    except ValueError as error:
        raise GrammarError(f"not JSON: {error}") from error
    except RecursionError:
        raise GrammarError("JSON nested too deeply") from None


def _answer(spec: GrammarSpec) -> dict[str, Any]:
    match spec.kind:
        case "json_object":
            return {"json_schema": read_schema('{"type": "object"}')}
        case "json_schema":
            return {"json_schema": read_schema(spec.source)}
        case "regex":
            return {"lark_grammar": _lark_of_regex(spec.source)}
        case "choice":
            # One expression: as alternatives of a rule, "a" would hide "ab".
            return {"lark_grammar": _lark_of_regex("|".join(map(_quoted, _choices(spec.source))))}
        case "grammar":
            return {"lark_grammar": to_lark(spec.source)}


def _lark_of_regex(pattern: str) -> str:
    quoted: str = json.loads(llguidance.LLMatcher.grammar_from_regex(pattern))["grammars"][0][
        "lark_grammar"
    ]
    return quoted


def _choices(source: str) -> list[str]:
    choices = read_json(source)
    if not isinstance(choices, list) or not choices:
        raise GrammarError("choice must be a JSON list of at least one string")
    for choice in choices:
        if not isinstance(choice, str) or not choice:
            raise GrammarError(f"choice must hold non-empty strings, got {choice!r:.40}")
        _require_unicode(choice)
    return choices


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() else rf"\x{{{ord(char):X}}}" for char in text)


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GrammarError(f"a lone surrogate at character {error.start}") from None
