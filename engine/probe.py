"""Proof, before anything is served, that a model computes the same through the block pool.

`architecture.py` has seen how its layers attend; but layers may keep state of their own, mix the
tokens of a forward, or count positions by themselves. So the loaded model is asked: a short text in
two chunks over a shuffled pool, the second together with another sequence, against the model's own
plain attention. Windows longer than the text need no longer one: that the mask of the model's own
attention is exactly the one that we apply, at any distance, has been seen of each layer.
"""

from typing import Any

import torch
from torch import Tensor, nn

from engine.architecture import cannot_be_served, first_line
from engine.errors import ConfigError
from engine.interface import attending_with
from engine.kernels.gathered import GatheredBatch
from engine.kv_cache import KVCache, LayerShape
from engine.model import context_limit
from engine.runner import BuildBatch, EagerForward, Forward, ModelRunner, RunnerInput
from engine.structure import attention_layers, text_config

PROOF_TOKENS = 12
PROOF_CHUNK = 7
PROOF_BLOCK_SIZE = 4
PROOF_KEPT = 3
"""Of the second chunk's tokens, those whose logits are asked for."""
LARGEST_ERROR = {torch.float32: 1e-3}
"""Of the logits, relative to their spread over the vocabulary. Rounding gives about 1e-6 in float32
and 1e-2 in bf16; a lost state or a missing window is of the order of 1."""
LARGEST_ERROR_ROUNDED = 0.15


def probe(
    model: nn.Module,
    cache_dtype: torch.dtype,
    device: torch.device,
    computing: torch.dtype | None = None,
) -> list[LayerShape]:
    """What each attention layer stores for a token. `computing`: the narrowest dtype that anything
    is rounded to, `cache_dtype` if it is None.

    Raises ConfigError for a model that can't be served through the pool, or not up to its context
    limit.
    """
    model_type = text_config(model).model_type
    try:
        shapes = attention_layers(model, device)
        error = paged_error(EagerForward(model), model, shapes, cache_dtype, device)
        _reach(model, context_limit(model) - 1, device)
    except ConfigError as refused:
        raise cannot_be_served(model_type, str(refused)) from None
    except Exception as failed:
        raise cannot_be_served(
            model_type, f"{type(failed).__name__}: {first_line(failed)}"
        ) from failed
    if not error <= largest_error(computing or cache_dtype):  # NaN is an error too
        raise cannot_be_served(
            model_type,
            f"through the block pool its logits differ from its own by {error:.2g} of their spread",
        )
    return shapes


def largest_error(computing: torch.dtype) -> float:
    """What `paged_error` may be where a model computes in that dtype."""
    return LARGEST_ERROR.get(computing, LARGEST_ERROR_ROUNDED)


@torch.inference_mode()
def paged_error(
    forward: Forward,
    model: nn.Module,
    shapes: list[LayerShape],
    cache_dtype: torch.dtype,
    device: torch.device,
    build_batch: BuildBatch = GatheredBatch.build,
) -> float:
    """Distance of `forward`'s logits from the model's plain ones, relative to their spread."""
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    vocab = int(embedding.num_embeddings)
    text, other = (
        [(31 * i + first) % vocab for i in range(PROOF_TOKENS)] for first in (7, vocab // 2)
    )
    with attending_with(model, "eager"):
        # Without position_ids: they must be those that we pass, from 0 on.
        plain = [
            model(input_ids=torch.tensor([tokens], device=device), use_cache=False).logits[0]
            for tokens in (text, other)
        ]
    num_blocks = -(-PROOF_TOKENS // PROOF_BLOCK_SIZE)
    cache = KVCache(shapes, 2 * num_blocks, PROOF_BLOCK_SIZE, cache_dtype, device)
    runner = ModelRunner(forward, cache, device, build_batch)
    text_blocks = [(2 * block + 3) % (2 * num_blocks) for block in range(num_blocks)]
    other_blocks = [2 * block for block in range(num_blocks)]
    start, rest = text[:PROOF_CHUNK], text[PROOF_CHUNK:]
    paged = [
        runner.forward([RunnerInput(start, 0, text_blocks, len(start))]),
        runner.forward(
            [
                RunnerInput(rest, len(start), text_blocks, PROOF_KEPT),
                RunnerInput(other, 0, other_blocks, len(other)),
            ]
        ),
    ]
    expected = torch.cat([plain[0][:PROOF_CHUNK], plain[0][-PROOF_KEPT:], plain[1]])
    return relative_error(torch.cat(paged), expected)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Distance of logits [rows, vocabulary] from others, relative to the spread of those."""
    expected = expected.float()
    spread = (expected - expected.mean(dim=-1, keepdim=True)).norm()
    return float((found.float() - expected).norm() / spread)


@torch.inference_mode()
def _reach(model: nn.Module, position: int, device: torch.device) -> None:
    """The last position that is served must lie within the model's tables of positions."""
    with attending_with(model, "eager"):
        model(
            input_ids=torch.zeros(1, 1, dtype=torch.long, device=device),
            position_ids=torch.tensor([[position]], device=device),
            use_cache=False,
        )
