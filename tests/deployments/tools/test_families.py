"""Which family a chat template belongs to."""

import pytest

from deployments.tools.families import HERMES, LLAMA, MISTRAL, Family, family_of
from tests.deployments.tools import templates
from tests.tiny_tokenizer import CHAT_TEMPLATE


@pytest.mark.parametrize(
    ("template", "family"),
    [
        (templates.HERMES, HERMES),
        (templates.HERMES_SIGNATURES, HERMES),
        (templates.LLAMA, LLAMA),
        (templates.MISTRAL, MISTRAL),
        (templates.MISTRAL.replace("[TOOL_CALLS] [", "[TOOL_CALLS]"), MISTRAL),
        # Statements that only transformers' own environment knows.
        (templates.HERMES + "{% generation %}{% break %}{% endgeneration %}", HERMES),
    ],
)
def test_families_are_told_apart(template: str, family: Family) -> None:
    assert family_of(template) is family


@pytest.mark.parametrize(
    "template",
    [
        "",
        CHAT_TEMPLATE,
        "{{ tools }}",
        "tools <tool_call> arguments {{ messages }}",
        "{# tools #}{{ 'tools: <tool_call> arguments' }}",
        "{{ settings.tools }}<tool_call> arguments",
        # Tools under another name are never given.
        templates.HERMES.replace(" tools", " xml_tools"),
        # Other ways to write calls within the same tag.
        templates.HERMES + "{{ '<function=' + name }}",
        templates.HERMES + "{{ '<arg_key>' + name }}",
        templates.HERMES.replace("tool_call>", "tool_calls>"),
        templates.LLAMA.replace("parameters", "arguments"),
        templates.LLAMA.replace("start_header_id", "im_start"),
        templates.MISTRAL.replace("[TOOL_CALLS]", "<calls>"),
        # No template at all.
        "{{ tools }}<tool_call> arguments {{ 'unclosed",
        "{{ tools) }}<tool_call> arguments",
    ],
)
def test_other_templates_have_none(template: str) -> None:
    assert family_of(template) is None


def test_markers_are_what_decoding_must_keep() -> None:
    assert HERMES.markers == ("<tool_call>", "</tool_call>")
    assert LLAMA.markers == ("<|python_tag|>",)
    assert MISTRAL.markers == ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
