"""Which way a model writes calls, told from its chat template."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from jinja2 import Environment, TemplateSyntaxError

from deployments.tools import hermes, llama, mistral
from deployments.tools.call_ids import as_mistral_call_id, mistral_call_id, openai_call_id
from deployments.tools.call_reader import Layout


def _unchanged(call_id: str) -> str:
    return call_id


@dataclass(frozen=True, slots=True)
class Family:
    """Models that write calls in the same way."""

    name: str
    layout: Layout
    markers: tuple[str, ...]
    """Texts that tell calls from content: decoding must keep those that are special tokens."""
    make_call_id: Callable[[str, int], str] = openai_call_id
    """Of a reply's name, and of the call's place in it."""
    template_call_id: Callable[[str], str] = _unchanged
    """An id of the conversation so far, as the templates accept it."""
    takes_calls_singly: bool = False
    """Whether the templates refuse a message with several calls, though the models write them."""


HERMES = Family("hermes", hermes.read_hermes, markers=(hermes.OPEN, hermes.CLOSE))
LLAMA = Family("llama", llama.read_llama, markers=(llama.TAG,), takes_calls_singly=True)
MISTRAL = Family(
    "mistral",
    mistral.read_mistral,
    markers=(mistral.CALLS, mistral.CALL_ID, mistral.ARGUMENTS),
    make_call_id=mistral_call_id,
    template_call_id=as_mistral_call_id,
)

_LLAMA_CALL = re.compile(r'\{\s*\\?"name\\?":[^{}]{1,80}\\?"parameters\\?":')
"""As the instructions show it; a quote may be escaped in the template."""
_OTHER_TOOL_CALLS = ("<function=", "<arg_key>")
"""What stands within <tool_call> in place of JSON: in Qwen3-Coder's calls, in GLM's."""


def family_of(template: str) -> Family | None:
    """None where the template takes no tools, or has calls written in a way not known here.

    `template` is the one for tools, should a model have several:
    `tokenizer.get_chat_template(tools=[...])`.
    """
    if not _takes_tools(template):
        return None
    if mistral.CALLS in template:
        return MISTRAL
    if hermes.OPEN in template and "arguments" in template:
        return None if any(other in template for other in _OTHER_TOOL_CALLS) else HERMES
    if "<|start_header_id|>" in template and _LLAMA_CALL.search(template):
        return LLAMA
    return None


def _takes_tools(template: str) -> bool:
    """Whether its code has a variable `tools`; the word in a text or a comment is none."""
    try:
        tokens = [(kind, text) for _, kind, text in Environment().lex(template)]
    except TemplateSyntaxError:
        return False
    tokens = [token for token in tokens if token[0] != "whitespace"]
    return any(
        token == ("name", "tools") and before != ("operator", ".")
        for before, token in zip([("", ""), *tokens], tokens, strict=False)
    )
