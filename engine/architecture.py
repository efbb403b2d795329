"""Which architectures are served, decided from config.json alone, before any weights are read.

What a configuration or a class says of itself is taken first: an encoder-decoder, a recurrent
state, images. The rest is seen on a twin of the model without weights (torch's `meta` device), by
how its layers attend (`structure.py`). No list of known architectures is kept, so one that is new,
or a model's own code, is served if it passes. What a twin can't show, such as code that reads
values, is asked of the loaded model again (`probe.py`).
"""

import inspect
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)

from engine import attention
from engine.errors import ConfigError
from engine.interface import MEANING
from engine.structure import attention_layers

MODALITIES = ("vision", "audio", "image", "video", "speech", "vq")
"""Parts of the names of configurations within a configuration that tell a multimodal model."""

RECURRENT = "its layers keep a recurrent state (Mamba, linear attention, convolutions)"

ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention"})
RECURRENT_LAYERS = frozenset({"linear_attention", "mamba", "conv", "hybrid", "hybrid_sliding"})

ALIBI_PARAMETERS = frozenset({"alibi", "position_bias"})
"""Names under which attention modules are handed a bias, where no configuration tells of it."""


def read_config(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The folder's config.json, and attention made known for what it describes.

    Raises ConfigError, in one line, when there is none that transformers understands.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model {folder}: no config.json there")
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:
        raise ConfigError(f"model {folder}: cannot be loaded: {first_line(error)}") from error
    attention.register()
    if config.model_type == "falcon":
        from engine import falcon  # imports the model's code, which takes a while

        falcon.register()
    return config


def require_servable(folder: Path, *, trust_remote_code: bool = False) -> None:
    """Raise ConfigError, naming the model type and the reason, for what can't be served."""
    config = read_config(folder, trust_remote_code=trust_remote_code)
    try:
        _require_language_model(config, trust_remote_code)
        _require_structure(config, trust_remote_code)
    except ConfigError as refused:
        raise cannot_be_served(config.model_type, str(refused)) from None


def cannot_be_served(model_type: str, reason: str) -> ConfigError:
    return ConfigError(f"model type {model_type!r} cannot be served: {reason}")


def first_line(error: Exception) -> str:
    """Also what follows a line that ends in a colon: the reason stands there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    shown = lines[:1] or [type(error).__name__]
    for line in lines[1:]:
        if not shown[-1].endswith(":"):
            break
        shown.append(line)
    return " ".join(shown)


def _require_language_model(config: PreTrainedConfig, trust_remote_code: bool) -> None:
    """By what the configuration and the model's class say of themselves."""
    kind = config.model_type
    if config.is_encoder_decoder:
        raise ConfigError("it is an encoder-decoder")
    other_layers = (
        set(getattr(config.get_text_config(), "layer_types", None) or ()) - ATTENTION_LAYERS
    )
    if other_layers & RECURRENT_LAYERS:
        raise ConfigError(RECURRENT)
    if other_layers:
        raise ConfigError(f"its layers include {min(other_layers)!r}")
    if trust_remote_code and "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {}):
        return  # its own code; transformers knows no class for it, or another one
    multimodal = {
        **MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
        **MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        if kind in multimodal or _modalities(type(config)):
            raise ConfigError(f"it is multimodal ({multimodal.get(kind, type(config).__name__)})")
        if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
            raise ConfigError("it is an encoder")
        raise ConfigError("transformers has no causal language model of this type")
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if model_class.__name__ in multimodal.values() or _modalities(model_class.config_class):
        raise ConfigError(f"it is multimodal ({model_class.__name__})")
    if model_class._is_stateful:
        raise ConfigError(RECURRENT)


def _modalities(config_class: type[PreTrainedConfig] | None) -> list[str]:
    parts = getattr(config_class, "sub_configs", {})
    return [name for name in parts if any(modality in name for modality in MODALITIES)]


def _require_structure(config: PreTrainedConfig, trust_remote_code: bool) -> None:
    """By how the layers of a twin without weights attend."""
    device = torch.device("meta")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same come again when the model is loaded
            with device:
                twin: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                    config,
                    # Some kernels for mixtures of experts know no other on `meta`.
                    dtype=torch.bfloat16,
                    attn_implementation=attention.ATTENTION_NAME,
                    trust_remote_code=trust_remote_code,
                )
            twin.eval()
            if _has_alibi(twin):
                raise ConfigError(MEANING["position_bias"])
            attention_layers(twin, device)
    except ConfigError:
        raise
    except KeyError as missing:
        if missing.args == (attention.ATTENTION_NAME,):  # a choice of its own, made by name
            raise ConfigError(
                "it does not attend through transformers' AttentionInterface"
            ) from None
        raise ConfigError(f"KeyError: {missing}") from missing
    except Exception as failed:
        if "meta" not in str(failed).lower():
            raise ConfigError(f"{type(failed).__name__}: {first_line(failed)}") from failed
        # Code that reads values can't run on a twin; the loaded model will be asked.


def _has_alibi(model: Any) -> bool:
    parts = (model.config, getattr(model.config, "attn_config", None))
    told = [getattr(part, "alibi", None) for part in parts]
    if told != [None, None]:
        return any(told)
    return any(
        ALIBI_PARAMETERS & inspect.signature(module.forward).parameters.keys()
        for module in model.modules()
        if "Attention" in type(module).__name__
    )
