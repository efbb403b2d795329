"""A conversation as the model's own chat template writes it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from engine.errors import RequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def render_chat(tokenizer: "PreTrainedTokenizerFast", messages: Sequence[dict[str, str]]) -> str:
    """The conversation as the model's template writes it, ready for the assistant's answer.

    Raises RequestError when the model has no template, or when its template refuses the messages.
    """
    if not tokenizer.chat_template:
        raise RequestError(
            "messages", "this model has no chat template; send a prompt to /v1/completions instead"
        )
    try:
        text: Any = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
    except (TemplateError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise RequestError(
            "messages", f"messages do not fit the model's chat template: {reason}"
        ) from error
    assert isinstance(text, str)
    return text
