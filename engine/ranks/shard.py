"""A rank's part of the target: loaded, sharded by DeepSpeed, and proved to compute the same.

Whether DeepSpeed shards a family rightly is not told by a list. A small twin of the model, with its
shapes, two layers and random weights, is sharded before the weights are read, and must give the
logits of the whole twin; the loaded model is asked the same afterwards.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from engine import attention
from engine.architecture import cannot_be_served, first_line, read_config
from engine.config import DtypeName
from engine.interface import attending_with
from engine.kernels.gathered import GatheredBatch
from engine.loaded import LoadedModel
from engine.model import DTYPES, load_model
from engine.probe import largest_error, probe, relative_error
from engine.ranks.group import shard_in_place
from engine.runner import EagerForward
from engine.sampling import choose

TWIN_LAYERS = 2
TWIN_VOCAB = 128
_HOST = torch.device("cpu")
_TEXT = 9
"""Tokens of the text that whole and sharded model are compared by."""


def load_shard(
    folder: Path,
    dtype_name: DtypeName,
    device: torch.device,
    report: Callable[[str], None],
    size: int,
    *,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """This rank's part; all ranks of the group must call it together.

    Raises ConfigError for a model that can't be loaded or sharded.
    """
    dtype = DTYPES[dtype_name]
    report("checking that the model can be sharded")
    require_shardable(folder, size, device, trust_remote_code=trust_remote_code)
    report(f"loading {folder.name}")
    # In the host's memory, where weights of their own dtype are pages of the file: no device is to
    # hold the whole.
    model = load_model(folder, dtype, _HOST, pack=False, trust_remote_code=trust_remote_code)
    report(f"sharding {folder.name}")
    model = sharded(model, size, dtype, device)
    report(f"checking attention of {folder.name}")
    layers = probe(model, dtype, device)
    return LoadedModel(
        model, layers, dtype, device, EagerForward(model), GatheredBatch.build, choose
    )


def require_shardable(
    folder: Path, size: int, device: torch.device, *, trust_remote_code: bool = False
) -> None:
    """Raise ConfigError when DeepSpeed would not shard such a model rightly. A model that no small
    twin can be made of is asked once it is loaded."""
    twin = _twin(read_config(folder, trust_remote_code=trust_remote_code), trust_remote_code)
    if twin is not None:
        sharded(twin, size, torch.float32, device)


def sharded(model: nn.Module, size: int, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """The rank's part, on `device`, of a `model` in the host's memory, which is used up. Raises
    ConfigError when it computes otherwise than the whole."""
    config: Any = model.config
    kind = config.get_text_config().model_type
    whole = _logits(model, _HOST)
    try:
        part: nn.Module = shard_in_place(model, size, dtype).to(device)
        found = _logits(part, device)
    except Exception as failed:
        raise cannot_be_served(
            kind,
            f"DeepSpeed can't shard it over {size} ranks ({type(failed).__name__}: "
            f"{first_line(failed)})",
        ) from failed
    error = relative_error(found, whole)
    if not error <= largest_error(dtype):
        raise cannot_be_served(
            kind, f"sharded over {size} ranks its logits differ by {error:.2g} of their spread"
        )
    return part


@torch.inference_mode()
def _logits(model: nn.Module, device: torch.device) -> Tensor:
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    tokens = [(31 * i + 7) % embedding.num_embeddings for i in range(_TEXT)]
    with attending_with(model, "eager"):
        output: Any = model(input_ids=torch.tensor([tokens], device=device), use_cache=False)
    logits: Tensor = output.logits[0]
    return logits.to(_HOST)


def _twin(config: Any, trust_remote_code: bool) -> nn.Module | None:
    """With the model's own shapes but for layers and vocabulary; None where it can't be made so.
    Every rank makes the same."""
    small = copy.deepcopy(config)
    text = small.get_text_config()
    text.num_hidden_layers = TWIN_LAYERS
    text.vocab_size = min(text.vocab_size, TWIN_VOCAB)
    if getattr(text, "layer_types", None):
        text.layer_types = list(text.layer_types[:TWIN_LAYERS])
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(small, name, None)
        setattr(text, name, None)
    attention.register()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            twin: nn.Module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                small,
                dtype=torch.float32,
                attn_implementation=attention.ATTENTION_NAME,
                trust_remote_code=trust_remote_code,
            )
    except Exception:
        return None
    twin.eval().requires_grad_(False)
    try:
        _logits(twin, _HOST)
    except Exception:
        return None  # as it is, it computes nothing: what is wrong is said of the model itself
    return twin
