"""Loading: a folder in Hugging Face format -> a model that attends through the block pool."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from engine import attention, linear
from engine.config import DtypeName
from engine.errors import ConfigError
from engine.kv_cache import LayerShape

DTYPES: dict[DtypeName, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The folder's tokenizer. Raises ConfigError if there is none, or no fast one."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise ConfigError(
            f"model {folder}: cannot load its tokenizer: {_first_line(error)}"
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"model {folder}: its tokenizer has no tokenizer.json; convert it first")
    return tokenizer


def load_model(
    folder: Path, dtype: torch.dtype, device: torch.device, *, trust_remote_code: bool = False
) -> nn.Module:
    """The causal language model in `folder`, in eval mode, on `device`.

    Raises ConfigError, in one line, when the folder holds none that can be loaded.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model {folder}: no config.json there")
    attention.register()
    try:
        config = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=attention.ATTENTION_NAME,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    except Exception as error:
        raise ConfigError(f"model {folder}: cannot be loaded: {_first_line(error)}") from error
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise ConfigError(f"model {folder}: weights are missing, among them {missing[0]}")
    model = model.to(device).eval().requires_grad_(False)
    if linear.can_pack(dtype, device):
        linear.pack_linears(model)
    return model  # type: ignore[no-any-return]


def eos_token_ids(folder: Path, model: nn.Module) -> frozenset[int]:
    """Tokens that end a sequence, of generation_config.json or, without one, of config.json."""
    found: Any = getattr(model.config, "eos_token_id", None)
    path = folder / "generation_config.json"
    if path.is_file():
        found = json.loads(path.read_text()).get("eos_token_id", found)
    if found is None:
        return frozenset()
    return frozenset(found) if isinstance(found, list) else frozenset({found})


def context_limit(model: nn.Module) -> int:
    """Longest sequence the model has positions for, in tokens."""
    text_config = _config(model).get_text_config()
    limit: int | None = getattr(text_config, "max_position_embeddings", None)
    return 2**31 - 1 if limit is None else limit


def vocab_size(model: nn.Module) -> int:
    """Rows of the input embedding."""
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    return int(embedding.num_embeddings)


def probe_layers(model: nn.Module, device: torch.device) -> list[LayerShape]:
    """What each attention layer stores, seen by running one token through the model.

    Asking the model itself is right for every architecture and for every rank of a sharded one.
    Raises ConfigError for a model whose layers do not all attend through our function.
    """
    shapes: dict[int, LayerShape] = {}

    def record(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **_kwargs: object,
    ) -> tuple[Tensor, None]:
        layer: int = module.layer_idx  # type: ignore[assignment]
        shapes[layer] = LayerShape(key.shape[1], key.shape[-1], value.shape[-1])
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1]), None

    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    AttentionInterface.register(attention.ATTENTION_NAME, record)
    try:
        with torch.inference_mode():
            model(input_ids=token, position_ids=token, use_cache=False)
    finally:
        attention.register()
    expected = _config(model).get_text_config().num_hidden_layers
    if sorted(shapes) != list(range(expected)):
        raise ConfigError(
            f"model type {_config(model).model_type!r}: "
            f"{len(shapes)} of {expected} layers use standard attention; it cannot be served"
        )
    return [shapes[layer] for layer in range(expected)]


def _config(model: nn.Module) -> Any:
    return model.config


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
