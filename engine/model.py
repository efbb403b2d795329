"""Loading: a folder in Hugging Face format -> a model that attends through the block pool."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from engine import attention
from engine.architecture import first_line, read_config
from engine.config import DtypeName
from engine.errors import ConfigError
from engine.kernels import linear
from engine.kernels.products import ProductOf, product_of
from engine.structure import text_config
from engine.vocabulary import trim_head

logger = logging.getLogger(__name__)

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
            f"model {folder}: cannot load its tokenizer: {first_line(error)}"
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"model {folder}: its tokenizer has no tokenizer.json; convert it first")
    return tokenizer


def load_model(
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    *,
    product_of: ProductOf = product_of,
    vocabulary: Sequence[int] | None = None,
    pack: bool = True,
    trust_remote_code: bool = False,
) -> nn.Module:
    """The causal language model in `folder`, in eval mode, on `device`.

    On a CPU `product_of` packs its linear layers, unless `pack` is False. `vocabulary`: the tokens
    whose logits are wanted, in ascending order; None for all.

    Raises ConfigError, in one line, when the folder holds none that can be loaded.
    """
    model: Any = read_model(
        folder,
        dtype,
        attention=attention.ATTENTION_NAME,
        trust_remote_code=trust_remote_code,
    )
    if vocabulary is not None:
        try:
            trim_head(model, vocabulary)
        except ConfigError as error:
            raise ConfigError(f"model {folder}: {error}") from None
    model = model.to(device).eval().requires_grad_(False)
    if pack and linear.is_packed(device):
        linear.pack(model, product_of)
    return model  # type: ignore[no-any-return]


def read_model(
    folder: Path,
    dtype: torch.dtype | Literal["auto"],
    *,
    attention: str | None = None,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """The causal language model in `folder`, as transformers has it: whoever wants weights reads
    them here. `dtype`: "auto" is the one that they are stored in; `attention`: None is the model's
    own.

    Raises ConfigError, in one line, for pickled weights, for code of the folder's own unless it is
    trusted, and for what can't be loaded.
    """
    _require_safetensors(folder)
    config = read_config(folder, trust_remote_code=trust_remote_code)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # stages are told
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:
        raise ConfigError(f"model {folder}: cannot be loaded: {first_line(error)}") from error
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise ConfigError(f"model {folder}: weights are missing, among them {missing[0]}")
    if unused := sorted(info["unexpected_keys"]):
        logger.warning("%s: %d weights are not used, among them %s", folder, len(unused), unused[0])
    return model  # type: ignore[no-any-return]


def _require_safetensors(folder: Path) -> None:
    """Raises ConfigError for weights that are pickled: to unpickle is to run what they say."""
    pickled = sorted(path.name for path in folder.glob("*.bin"))
    if pickled and not any(folder.glob("*.safetensors")):
        raise ConfigError(
            f"model {folder}: {pickled[0]} holds pickled weights, which may run code when they "
            "are read; convert them to safetensors first"
        )


def eos_token_ids(folder: Path, model: nn.Module) -> frozenset[int]:
    """Tokens that end a sequence, of generation_config.json or, without one, of config.json.

    Raises ConfigError for anything but token ids.
    """
    found: Any = getattr(model.config, "eos_token_id", None)
    path = folder / "generation_config.json"
    if path.is_file():
        try:
            found = json.loads(path.read_text()).get("eos_token_id", found)
        except (ValueError, AttributeError) as error:
            raise ConfigError(f"model {folder}: cannot read {path.name}: {error}") from error
    ids = [] if found is None else found if isinstance(found, list) else [found]
    for token in ids:
        if type(token) is not int or not 0 <= token < vocab_size(model):
            raise ConfigError(f"model {folder}: eos_token_id must be token ids, got {token!r}")
    return frozenset(ids)


def context_limit(model: nn.Module) -> int:
    """Longest sequence, in tokens, that the model answers alike in one piece and in chunks.

    That is what it has positions for, except with rotary factors that change for all tokens,
    computed ones included, when one lies beyond the original context: "longrope" (long-context
    Phi-3) is served up to that, as is "dynamic" NTK, whose positions end there anyway.
    """
    config = text_config(model)
    limit: int | None = getattr(config, "max_position_embeddings", None)
    if limit is None:
        return 2**31 - 1
    rope = getattr(config, "rope_parameters", None) or {}
    by_layer_type = [value for value in rope.values() if isinstance(value, dict)]
    for parameters in by_layer_type or [rope]:
        if parameters.get("rope_type") == "longrope":
            original = parameters.get("original_max_position_embeddings")
            limit = min(limit, original or limit)
    return limit


def vocab_size(model: nn.Module) -> int:
    """Rows of the input embedding."""
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    return int(embedding.num_embeddings)
