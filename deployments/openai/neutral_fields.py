"""Fields of the OpenAI API that are not honoured: which values ask for nothing.

A field given at its neutral value is dropped, because leaving it unhonoured changes nothing. With
any other value it is refused by name: a parameter is never accepted and ignored. `null` is neutral
for every field here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deployments.json_values import show
from engine.errors import RequestError


@dataclass(frozen=True, slots=True)
class Neutral:
    """Values that ask for nothing: those listed, or all that `accepts` takes."""

    values: tuple[Any, ...] = ()
    accepts: Callable[[object], bool] | None = None
    expected: str | None = None
    """What is accepted, in words, where `accepts` decides."""

    def holds(self, value: object) -> bool:
        if value is None or (self.accepts is not None and self.accepts(value)):
            return True
        # True == 1 and 0 == False in Python, but not in JSON; 0 and 0.0 are the same number there.
        return any(
            isinstance(value, bool) == isinstance(neutral, bool) and value == neutral
            for neutral in self.values
        )

    def describe(self) -> str:
        return self.expected or " or ".join(show(value) for value in self.values) or "null"


ONLY_NULL = Neutral()
FALSE = Neutral((False,))
EMPTY_LIST = Neutral(([],))
LABEL = Neutral(accepts=lambda value: isinstance(value, str), expected="a string")
"""Names for the caller's own bookkeeping; they never change an answer."""
LABELS = Neutral(
    accepts=lambda value: (
        isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())
    ),
    expected="an object of strings",
)

_COMMON: dict[str, Neutral] = {
    "user": LABEL,
    "metadata": LABELS,
    "safety_identifier": LABEL,
    "prompt_cache_key": LABEL,
    "service_tier": Neutral(("auto", "default")),
    "store": FALSE,
}
COMPLETION_FIELDS: Mapping[str, Neutral] = _COMMON | {
    "suffix": Neutral(("",)),
}
CHAT_FIELDS: Mapping[str, Neutral] = _COMMON | {
    "audio": ONLY_NULL,
    "function_call": Neutral(("none",)),
    "functions": EMPTY_LIST,
    "modalities": Neutral((["text"],)),
    "moderation": ONLY_NULL,
    "prediction": ONLY_NULL,
    "prompt_cache_options": ONLY_NULL,
    "prompt_cache_retention": ONLY_NULL,
    "reasoning_effort": Neutral(("none",)),
    "verbosity": ONLY_NULL,
    "web_search_options": ONLY_NULL,
}
MESSAGE_FIELDS: Mapping[str, Neutral] = {
    "annotations": EMPTY_LIST,
    "audio": ONLY_NULL,
    "function_call": ONLY_NULL,
    "name": ONLY_NULL,
    "refusal": ONLY_NULL,
}
STREAM_OPTIONS_FIELDS: Mapping[str, Neutral] = {"include_obfuscation": FALSE}


def without_neutral(
    body: Mapping[str, Any], fields: Mapping[str, Neutral], prefix: str = ""
) -> dict[str, Any]:
    """`body` less its neutral fields. Raises RequestError for one that asks for something."""
    for name, neutral in fields.items():
        if name in body and not neutral.holds(body[name]):
            raise RequestError(
                prefix + name,
                f"{prefix}{name} is not supported, so it must be left out or be "
                f"{neutral.describe()}; got {show(body[name])}",
            )
    return {name: value for name, value in body.items() if name not in fields}
