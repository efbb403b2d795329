"""Types of request fields that take several forms: read into one, or refused with a reason."""

import json
from typing import Annotated, Any

from pydantic import PlainValidator

from deployments.json_values import show
from deployments.strict_model import valid_text
from deployments.tools.plain_json import check_plain_json
from engine.request import MAX_BAD_WORDS

MAX_STOP_STRINGS = 4
MAX_BIAS = 100
SPELLINGS = 2
"""Token sequences that a bad word is turned into."""
_MAX_ID_DIGITS = 10


def _prompts(value: object) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(value, list) and value and all(isinstance(part, str | list) for part in value):
        return tuple(map(_prompt, value))
    return (_prompt(value),)


def _prompt(value: object) -> str | tuple[int, ...]:
    if isinstance(value, list):
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in value):
            raise ValueError("must be a string or a list of token ids, or several of these")
        value = tuple(value)
    elif isinstance(value, str):
        value = valid_text(value)
    else:
        raise ValueError("must be a string or a list of token ids, or several of these")
    if not value:
        raise ValueError("must not be empty")
    return value


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("must be a string or a list of strings")
    if len(texts) > MAX_STOP_STRINGS:
        raise ValueError(f"must have at most {MAX_STOP_STRINGS} strings")
    return _texts(texts)


def _bad_words(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("must be a list of strings")
    if len(value) > MAX_BAD_WORDS // SPELLINGS:
        raise ValueError(f"must have at most {MAX_BAD_WORDS // SPELLINGS} strings")
    return _texts(value)


def _texts(texts: list[Any]) -> tuple[str, ...]:
    if "" in texts:
        raise ValueError("must not hold an empty string")
    return tuple(valid_text(text) for text in texts)


def _logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise ValueError("must be an object that gives token ids a bias")
    return tuple((_token_id(key), _bias(key, bias)) for key, bias in value.items())


def _token_id(key: object) -> int:
    # Written in one way only: "7" and "07" would be one token with two biases.
    if (
        isinstance(key, str)
        and len(key) <= _MAX_ID_DIGITS
        and key.isascii()
        and key.isdecimal()
        and key == str(int(key))
    ):
        return int(key)
    raise ValueError(f'must have token ids as keys, as in {{"50": 1}}, not {show(key)}')


def _bias(key: object, bias: object) -> float:
    if (
        isinstance(bias, bool)
        or not isinstance(bias, int | float)
        or not -MAX_BIAS <= bias <= MAX_BIAS  # NaN is in no range
    ):
        raise ValueError(
            f"must have numbers between -{MAX_BIAS} and {MAX_BIAS} as values, "
            f"not {show(bias)} for {show(key)}"
        )
    return float(bias)


def _content(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, list):
        return valid_text(value)
    texts = []
    for part in value:
        if not isinstance(part, dict) or set(part) != {"type", "text"} or part["type"] != "text":
            raise ValueError('must be a string or a list of {"type": "text", "text": ...} parts')
        texts.append(valid_text(part["text"]))
    return "".join(texts)


def _json_schema(value: object) -> str:
    if not isinstance(value, dict):
        raise ValueError("must be a JSON schema, as an object")
    check_plain_json(value)
    return json.dumps(value)


def _json_schema_or_text(value: object) -> str:
    return valid_text(value) if isinstance(value, str) else _json_schema(value)


def _choices(value: object) -> str:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise ValueError("must be a list of at least one string")
    return json.dumps(_texts(value))


Prompts = Annotated[
    tuple[str | tuple[int, ...], ...],
    PlainValidator(_prompts, json_schema_input_type=str | list[int] | list[str] | list[list[int]]),
]
"""One or several."""
Stop = Annotated[
    tuple[str, ...], PlainValidator(_stop, json_schema_input_type=str | list[str] | None)
]
BadWords = Annotated[
    tuple[str, ...], PlainValidator(_bad_words, json_schema_input_type=list[str] | None)
]
LogitBias = Annotated[
    tuple[tuple[int, float], ...],
    PlainValidator(_logit_bias, json_schema_input_type=dict[str, float] | None),
]
Content = Annotated[
    str | None, PlainValidator(_content, json_schema_input_type=str | list[dict[str, str]] | None)
]
JsonSchema = Annotated[str, PlainValidator(_json_schema, json_schema_input_type=dict[str, Any])]
"""Read into its JSON text, with the properties in the order given."""
JsonSchemaOrText = Annotated[
    str, PlainValidator(_json_schema_or_text, json_schema_input_type=dict[str, Any] | str)
]
Choices = Annotated[str, PlainValidator(_choices, json_schema_input_type=list[str])]
"""Read into a JSON list."""
