"""How a model's layers attend, found by running it once with an attention that only takes notes.

Nothing is computed, so the model may lie on torch's `meta` device and have no weights at all. What
is learned of each layer: what it stores for a token, and which earlier tokens it may see. The mask
comes as transformers builds it for the model's own attention: as a predicate over positions, which
is compared with what the layer asks of us (causal, within a window) at distances that no text of a
reasonable length would reach.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from engine import interface
from engine.errors import ConfigError
from engine.kv_cache import LayerShape

NOTES_NAME = "paceline_notes"
"""Name under which transformers finds `_take_note` and the mask function that goes with it."""

PREDICATE = "visible"
"""Attribute under which a mask carries its predicate."""


@dataclass(slots=True)
class _Notes:
    shapes: dict[int, LayerShape] = field(default_factory=dict)
    windows: dict[int, int | None] = field(default_factory=dict)
    masks: dict[int, Tensor | None] = field(default_factory=dict)


def attention_layers(model: nn.Module, device: torch.device) -> list[LayerShape]:
    """What each layer stores for a token.

    Raises ConfigError, without naming the model, for one that can't be served through the pool.
    """
    AttentionInterface.register(NOTES_NAME, _take_note)
    AttentionMaskInterface.register(NOTES_NAME, _keep_predicate)
    notes = _Notes()
    logits = _run(model, device, notes)
    config = text_config(model)
    expected = config.num_hidden_layers
    if sorted(notes.shapes) != list(range(expected)):
        raise ConfigError(
            f"{len(notes.shapes)} of its {expected} layers attend through transformers' "
            f"AttentionInterface"
        )
    limit = getattr(config, "max_position_embeddings", None) or 2**20
    for layer in range(expected):
        _require_mask(layer, notes.masks[layer], notes.windows[layer], limit)
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    if logits.shape[1] != 1:
        raise ConfigError("it computes logits for all positions, whichever are asked for")
    if logits.shape[-1] > embedding.num_embeddings:
        raise ConfigError(
            f"it has logits for {logits.shape[-1]} tokens and embeddings for "
            f"{embedding.num_embeddings}"
        )
    return [notes.shapes[layer] for layer in range(expected)]


def text_config(model: nn.Module) -> Any:
    config: Any = model.config
    return config.get_text_config()


def _run(model: nn.Module, device: torch.device, notes: _Notes) -> Tensor:
    """Logits [1, kept, vocab] of a text of two tokens of which the second's are asked for."""
    tokens = torch.zeros(1, 2, dtype=torch.long, device=device)
    with (
        torch.inference_mode(),
        interface.attending_with(model, NOTES_NAME),
        interface.passing(notes),
    ):
        output: Any = model(
            input_ids=tokens,
            position_ids=torch.arange(2, device=device)[None],
            # Without one transformers looks into the positions, which `meta` does not have.
            attention_mask=torch.ones_like(tokens),
            use_cache=False,
            logits_to_keep=torch.ones(1, dtype=torch.long, device=device),
        )
    logits: Tensor = output.logits
    return logits


def _take_note(
    module: nn.Module,
    query: Tensor,  # [1, H, N, D]
    key: Tensor,  # [1, K, N, D]
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Stands in for `paged_attention`, with its signature: notes what is asked, returns zeros."""
    notes: _Notes = interface.passed()
    interface.refuse_unsupported(None, kwargs)
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int):
        raise ConfigError("its attention does not know which layer it is")
    if layer in notes.shapes:
        raise ConfigError(f"layer {layer} attends more than once")
    notes.shapes[layer] = LayerShape(key.shape[1], key.shape[-1], value.shape[-1])
    notes.windows[layer] = sliding_window
    notes.masks[layer] = attention_mask
    return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1]), None


def _keep_predicate(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Tensor],
    dtype: torch.dtype,
    device: torch.device,
    **_: object,
) -> Tensor:
    """A mask that hides nothing and carries the predicate it would be made from."""
    mask = torch.zeros(1, 1, q_length, kv_length, dtype=dtype, device=device)
    setattr(mask, PREDICATE, mask_function)
    return mask


def _require_mask(layer: int, mask: Tensor | None, window: int | None, limit: int) -> None:
    """The mask that the layer's own attention gets must be the one we would apply."""
    if mask is None:
        raise ConfigError(f"layer {layer} attends without a mask")
    visible = getattr(mask, PREDICATE, None)
    if visible is None:
        raise ConfigError(f"layer {layer} attends through a mask of its own")
    positions = _telling_positions(window, limit)
    query, key = positions[:, None], positions[None, :]
    zero = torch.tensor(0)
    try:
        seen = torch.as_tensor(visible(zero, zero, query, key)).cpu().expand(len(positions), -1)
    except Exception as failed:
        raise ConfigError(f"layer {layer} attends through a mask of its own") from failed
    causal = key <= query
    if bool((seen & ~causal).any()):
        raise ConfigError("its attention looks at later tokens too, as an encoder's does")
    if not torch.equal(seen, causal if window is None else causal & (key > query - window)):
        if window is None:
            raise ConfigError(f"layer {layer} keeps its sliding window to itself")
        raise ConfigError(f"layer {layer} does not see exactly its window of {window} tokens")


def _telling_positions(window: int | None, limit: int) -> Tensor:
    """Positions near each power of two, each multiple of the window and the limit: wherever a mask
    may begin to hide tokens."""
    centres = [0, limit, *(2**power for power in range(limit.bit_length()))]
    if window is not None:
        centres += [window, 2 * window, limit - window]
    near = {centre + offset for centre in centres for offset in range(-2, 3)}
    return torch.tensor(sorted(position for position in near if 0 <= position < max(limit, 2)))
