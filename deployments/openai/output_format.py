"""What an answer must be: OpenAI's `response_format` and vLLM's `structured_outputs`."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PlainValidator

from deployments.openai.fields import Choices, JsonSchema, JsonSchemaOrText
from deployments.strict_model import StrictModel, Text
from engine.errors import RequestError
from engine.request import GrammarSpec

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class AskedGrammar:
    """A grammar, and the field that asks for it."""

    field: str
    spec: GrammarSpec


def _format_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("must be 1 to 64 ASCII letters, digits, _ or -")
    return value


class NamedSchema(StrictModel):
    name: Annotated[str, PlainValidator(_format_name, json_schema_input_type=str)]
    """For the caller's own use, like `description`."""
    description: Text | None = None
    json_schema: JsonSchema = Field(alias="schema")
    strict: bool | None = None
    """The answer conforms to the schema in any case."""


class ResponseFormat(StrictModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    def grammar(self) -> AskedGrammar | None:
        """Raises RequestError where type and schema don't fit each other."""
        field = "response_format.json_schema"
        if self.type != "json_schema":
            if self.json_schema is not None:
                raise RequestError(field, f'{field} needs response_format.type "json_schema"')
            if self.type == "text":
                return None
            return AskedGrammar("response_format", GrammarSpec("json_object"))
        if self.json_schema is None:
            raise RequestError(field, f'{field} is required with type "json_schema"')
        spec = GrammarSpec("json_schema", self.json_schema.json_schema)
        return AskedGrammar(f"{field}.schema", spec)


class StructuredOutputs(StrictModel):
    """Exactly one of them."""

    json_schema: JsonSchemaOrText | None = Field(default=None, alias="json")
    regex: Text | None = None
    choice: Choices | None = None
    grammar: Text | None = None
    """GBNF, the EBNF dialect of llama.cpp."""

    def asked(self) -> AskedGrammar:
        """Raises RequestError unless there is exactly one."""
        given = []
        if self.json_schema is not None:
            given.append(("json", GrammarSpec("json_schema", self.json_schema)))
        if self.regex is not None:
            given.append(("regex", GrammarSpec("regex", self.regex)))
        if self.choice is not None:
            given.append(("choice", GrammarSpec("choice", self.choice)))
        if self.grammar is not None:
            given.append(("grammar", GrammarSpec("grammar", self.grammar)))
        if len(given) != 1:
            names = " and ".join(name for name, _ in given) or "none of them"
            raise RequestError(
                "structured_outputs",
                "structured_outputs must have exactly one of json, regex, choice and grammar, "
                f"got {names}",
            )
        [(name, spec)] = given
        return AskedGrammar(f"structured_outputs.{name}", spec)


def asked_grammar(
    response_format: ResponseFormat | None, structured_outputs: StructuredOutputs | None
) -> AskedGrammar | None:
    """Raises RequestError where the two contradict each other or themselves."""
    if structured_outputs is None:
        return response_format.grammar() if response_format else None
    if response_format is not None:
        raise RequestError(
            "structured_outputs", "structured_outputs can't stand beside response_format"
        )
    return structured_outputs.asked()
