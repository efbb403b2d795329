"""Between transformers and our attention function: under which name it is called, and with what.

A model's forward gets our own keyword argument `paged`, which most architectures hand down to the
attention function of every layer. For those that drop it on the way, `deliver` puts it where each
layer's attention finds it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn
from transformers import PreTrainedConfig

from engine.errors import ConfigError

Paged = TypeVar("Paged")

MAILBOX = "paceline_mailbox"
"""Attribute under which an attention module finds the mailbox of its model."""

HARMLESS = frozenset(
    {
        "cache_position",
        "encoder_attention_mask",
        "is_causal",
        "labels",
        "logits_to_keep",
        "num_items_in_batch",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)
"""What models pass on to attention though it asks for nothing: positions are in the keys already,
and what hides tokens is checked as the mask it makes."""

MEANING = {
    "s_aux": "it has attention sinks",
    "sinks": "it has attention sinks",
    "position_bias": "it adds a bias to attention scores (ALiBi or relative positions)",
    "indices": "its attention picks tokens by an index (sparse attention)",
    "block_indices": "its attention picks blocks of tokens by an index (sparse attention)",
}


class NotDelivered(Exception):
    """The keyword argument `paged` did not reach a layer's attention."""


class _Mailbox:
    content: object = None


def deliver(model: nn.Module) -> None:
    """Leave `paged` of every forward where attention finds it; harmless when repeated."""
    if hasattr(model, MAILBOX):
        return
    mailbox = _Mailbox()
    for module in model.modules():
        if module is model or hasattr(module, "layer_idx"):
            setattr(module, MAILBOX, mailbox)

    def post(_model: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mailbox.content = kwargs.pop("paged", None)
        return args, kwargs

    model.register_forward_pre_hook(post, with_kwargs=True)


def delivered(module: nn.Module, paged: Paged | None) -> Paged:
    """What the forward was given as `paged`. Raises NotDelivered if it got lost."""
    if paged is None:
        mailbox = getattr(module, MAILBOX, None)
        paged = None if mailbox is None else mailbox.content
    if paged is None:
        raise NotDelivered("its layers do not pass keyword arguments on to attention")
    return paged


@contextmanager
def attending_with(model: nn.Module, name: str) -> Iterator[None]:
    """Let the model attend with the function known to transformers under `name` meanwhile."""
    configs = {
        id(config): config
        for module in model.modules()
        if isinstance(config := getattr(module, "config", None), PreTrainedConfig)
    }
    before = [(config, config._attn_implementation) for config in configs.values()]
    for config, _ in before:
        config._attn_implementation = name
    try:
        yield
    finally:
        for config, old in before:
            config._attn_implementation = old


def refuse_unsupported(attention_mask: Tensor | None, kwargs: Mapping[str, object]) -> None:
    """Raise ConfigError, without naming the model, for what would change the result and be lost."""
    if attention_mask is not None:
        raise ConfigError("it attends through a mask of its own")
    for name, value in kwargs.items():
        if name not in HARMLESS and value is not None and value is not False:
            raise ConfigError(MEANING.get(name, f"its attention asks for {name}, which is unknown"))
