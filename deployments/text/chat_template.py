"""A conversation as the model's own chat template writes it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from engine.errors import RequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def render_chat(
    tokenizer: "PreTrainedTokenizerFast",
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
    *,
    add_generation_prompt: bool = True,
) -> str:
    """The conversation, ready for the assistant's answer if `add_generation_prompt`.

    Raises RequestError when the model has no template, or when its template refuses the messages.
    """
    if not tokenizer.chat_template:
        raise RequestError(
            "messages", "this model has no chat template; send a prompt to /v1/completions instead"
        )
    try:
        text: Any = tokenizer.apply_chat_template(
            list(messages),
            tools=None if tools is None else list(tools),
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
        )
    except (TemplateError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise RequestError(
            "messages", f"messages do not fit the model's chat template: {reason}"
        ) from error
    assert isinstance(text, str)
    return text


def tools_template(tokenizer: "PreTrainedTokenizerFast") -> str | None:
    """The template that is used where there are tools; None: the model has no template."""
    if not tokenizer.chat_template:
        return None
    template = tokenizer.get_chat_template(tools=[])
    assert isinstance(template, str)
    return template
