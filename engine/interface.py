"""Between transformers and our attention function: under which name it is called, and with what.

What a forward's attention needs beside its tensors is passed around the model, not through it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedConfig

from engine.errors import ConfigError

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


_passed: ContextVar[object] = ContextVar("paceline_passed")


@contextmanager
def passing(value: object) -> Iterator[None]:
    """What attention finds as `passed` in forwards meanwhile. It does not travel as an argument,
    which some models drop on the way and none can be compiled with."""
    token = _passed.set(value)
    try:
        yield
    finally:
        _passed.reset(token)


def passed() -> Any:
    """What the forward that runs was given."""
    return _passed.get()


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
