"""A draft cut from its target: a few of its layers, between its embedding and its head."""

import copy
import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from engine.errors import ConfigError
from engine.structure import text_config


def spread(num_layers: int, num_kept: int) -> list[int]:
    """Which layers to keep: the first, the last, and evenly between.

    >>> spread(30, 2), spread(30, 1), spread(5, 3)
    ([0, 29], [0], [0, 2, 4])
    """
    if num_kept == 1:
        return [0]
    return [round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept)]


def cut(target: PreTrainedModel, layers: Sequence[int]) -> PreTrainedModel:
    """A model of some of the target's layers, in this order, with copies of all its weights.

    Raises ConfigError for a target whose layers can't be told from its weights' names.
    """
    depth = int(text_config(target).num_hidden_layers)
    stack = _stack(target, depth)
    config = copy.deepcopy(target.config)
    inner: Any = config.get_text_config()
    for name, value in list(vars(inner).items()):
        # What is listed layer by layer, such as `layer_types`.
        if isinstance(value, list) and len(value) == depth:
            setattr(inner, name, [value[layer] for layer in layers])
    inner.num_hidden_layers = len(layers)
    pattern = re.compile(rf"{re.escape(stack)}\.(\d+)\.(.*)")
    weights: dict[str, Tensor] = {}
    for name, tensor in target.state_dict().items():
        found = pattern.fullmatch(name)
        if found is None:
            weights[name] = tensor
            continue
        weights |= {
            f"{stack}.{place}.{found[2]}": tensor
            for place, layer in enumerate(layers)
            if layer == int(found[1])
        }
    try:
        model = like(target, config)
        model.load_state_dict(weights)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"--target: no draft can be cut from a {inner.model_type} model: {reason}"
        ) from error
    return model


def like(model: PreTrainedModel, config: PretrainedConfig) -> PreTrainedModel:
    """A new model of that shape, where and in the dtype in which `model` is."""
    auto: Any = AutoModelForCausalLM
    new: PreTrainedModel = auto.from_config(config, dtype=model.dtype).to(model.device)
    return new


def trained_parameters(draft: PreTrainedModel) -> dict[str, nn.Parameter]:
    """By name, all that is neither embedding nor head: those stay the target's."""
    whole: Any = draft
    frozen = {
        id(parameter)
        for module in (whole.get_input_embeddings(), whole.get_output_embeddings())
        if module is not None
        for parameter in module.parameters()
    }
    return {
        name: parameter
        for name, parameter in draft.named_parameters()
        if id(parameter) not in frozen
    }


def _stack(target: PreTrainedModel, depth: int) -> str:
    """The name of the list of layers."""
    names: list[str] = [
        name
        for name, module in target.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == depth
    ]
    if len(names) != 1:
        raise ConfigError(f"--target: {len(names)} lists of {depth} layers are found in it, not 1")
    return names[0]
