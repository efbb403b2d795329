"""Proof, before anything is served, that a model computes the same through the block pool.

Architectures differ in ways that no list keeps up with: attention that keeps state of its own,
windows that live only in a mask, layers that drop our keyword. So the model itself is asked: one
token is run to see what its layers store and pass on, then a short text in two chunks over a
shuffled pool, against the model's own plain attention.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine import attention
from engine.errors import ConfigError
from engine.kv_cache import KVCache, LayerShape
from engine.runner import ModelRunner, RunnerInput

KNOWN_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
PROOF_TOKENS = 12
PROOF_CHUNK = 7
PROOF_BLOCK_SIZE = 4
LARGEST_ERROR = {torch.float32: 1e-3}
"""Of the logits, relative to their spread over the vocabulary. Rounding gives about 1e-6 in float32
and 1e-2 in bf16; a lost state or a missing window is of the order of 1."""
LARGEST_ERROR_ROUNDED = 0.15


def probe(model: nn.Module, cache_dtype: torch.dtype, device: torch.device) -> list[LayerShape]:
    """What each attention layer stores for a token. Raises ConfigError for a model that can't be
    served through the pool."""
    model_type = _text_config(model).model_type
    try:
        shapes = _layer_shapes(model, device)
        error = _paged_error(model, shapes, cache_dtype, device)
    except ConfigError as refused:
        raise ConfigError(f"model type {model_type!r} cannot be served: {refused}") from None
    except Exception as failed:
        reason = (str(failed).strip().splitlines() or [""])[0]
        raise ConfigError(
            f"model type {model_type!r} cannot be served: {type(failed).__name__}: {reason}"
        ) from failed
    finally:
        attention.register()
    dtype = next(model.parameters()).dtype
    if not error <= LARGEST_ERROR.get(dtype, LARGEST_ERROR_ROUNDED):  # NaN is an error too
        raise ConfigError(
            f"model type {model_type!r} cannot be served: through the block pool its logits differ "
            f"from its own by {error:.2g} of their spread"
        )
    return shapes


def _layer_shapes(model: nn.Module, device: torch.device) -> list[LayerShape]:
    shapes: dict[int, LayerShape] = {}
    windows: dict[int, int | None] = {}
    sentinel = object()

    def record(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        paged: object = None,
        sliding_window: int | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        attention.refuse_unsupported(attention_mask, kwargs)
        layer: int = module.layer_idx  # type: ignore[assignment]
        if paged is not sentinel:
            raise ConfigError("its layers do not pass keyword arguments on to attention")
        if layer in shapes:
            raise ConfigError(f"layer {layer} attends more than once")
        shapes[layer] = LayerShape(key.shape[1], key.shape[-1], value.shape[-1])
        windows[layer] = sliding_window
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1]), None

    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    AttentionInterface.register(attention.ATTENTION_NAME, record)
    with torch.inference_mode():
        model(input_ids=token, position_ids=token, use_cache=False, paged=sentinel)
    config = _text_config(model)
    expected = config.num_hidden_layers
    if sorted(shapes) != list(range(expected)):
        raise ConfigError(f"{len(shapes)} of {expected} layers use standard attention")
    _require_windows(config, windows)
    return [shapes[layer] for layer in range(expected)]


def _require_windows(config: Any, windows: dict[int, int | None]) -> None:
    """A window that the configuration names must reach the attention function."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None:
        if unknown := set(layer_types) - KNOWN_LAYER_TYPES:
            raise ConfigError(f"its layers include {min(unknown)!r}")
        sliding = [i for i, kind in enumerate(layer_types) if kind == "sliding_attention"]
    else:
        has_window = getattr(config, "sliding_window", None) is not None
        uses_it = has_window and getattr(config, "use_sliding_window", True)
        sliding = [0] if uses_it and not any(windows.values()) else []
    if missing := [layer for layer in sliding if windows[layer] is None]:
        raise ConfigError(f"layer {missing[0]} keeps its sliding window to itself")


def _paged_error(
    model: nn.Module, shapes: list[LayerShape], cache_dtype: torch.dtype, device: torch.device
) -> float:
    """Distance of paged from plain logits, relative to the plain ones' spread."""
    attention.register()
    switch: Any = model
    vocab = int(switch.get_input_embeddings().num_embeddings)
    token_ids = [(31 * i + 7) % vocab for i in range(PROOF_TOKENS)]
    switch.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            row = torch.tensor([token_ids], device=device)
            positions = torch.arange(PROOF_TOKENS, device=device)[None]
            plain = switch(input_ids=row, position_ids=positions, use_cache=False).logits[0].float()
    finally:
        switch.set_attn_implementation(attention.ATTENTION_NAME)
    num_blocks = -(-PROOF_TOKENS // PROOF_BLOCK_SIZE)
    cache = KVCache(shapes, num_blocks, PROOF_BLOCK_SIZE, cache_dtype, device)
    runner = ModelRunner(model, cache, device)
    blocks = [(block + 1) % num_blocks for block in range(num_blocks)]
    chunks = [
        runner.forward([RunnerInput(part, start, blocks, len(part))]).float()
        for start, part in ((0, token_ids[:PROOF_CHUNK]), (PROOF_CHUNK, token_ids[PROOF_CHUNK:]))
    ]
    spread = (plain - plain.mean(dim=-1, keepdim=True)).norm()
    return float((torch.cat(chunks) - plain).norm() / spread)


def _text_config(model: nn.Module) -> Any:
    config: Any = model.config
    return config.get_text_config()
