"""A model with all that it takes to run, but a KV cache."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from engine.config import DtypeName
from engine.errors import ConfigError
from engine.kernels import choice
from engine.kernels.compiled import compiled_forward
from engine.kernels.gathered import GatheredBatch
from engine.kernels.linear import is_packed
from engine.kernels.native import CannotBuild, NativeBatch, load
from engine.kernels.panels import PanelProduct, rounds_rows
from engine.kernels.products import product_of
from engine.kv_cache import KVCache, LayerShape
from engine.model import DTYPES, load_model
from engine.probe import largest_error, paged_error, probe
from engine.runner import BuildBatch, EagerForward, Forward, ModelRunner
from engine.sampling import Choose, choose

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    model: nn.Module
    layers: list[LayerShape]
    """What each attention layer stores for a token, in `kv_dtype`."""
    kv_dtype: torch.dtype
    device: torch.device
    forward: Forward
    build_batch: BuildBatch
    choose: Choose

    @classmethod
    def load(
        cls,
        folder: Path,
        dtype_name: DtypeName,
        device: torch.device,
        report: Callable[[str], None],
        *,
        compile_folder: Path | None = None,
        vocabulary: Sequence[int] | None = None,
        trust_remote_code: bool = False,
    ) -> "LoadedModel":
        """`report` is told each stage as it begins; `vocabulary`: the tokens whose logits are
        wanted, in ascending order, None for all.

        Raises ConfigError for a model that can't be loaded or served.
        """
        dtype = DTYPES[dtype_name]
        packed = is_packed(device)
        has_operators = (
            packed and compile_folder is not None and _load_operators(compile_folder, report)
        )
        report(f"loading {folder.name}")
        model = load_model(
            folder,
            dtype,
            device,
            product_of=PanelProduct if has_operators else product_of,
            vocabulary=vocabulary,
            trust_remote_code=trust_remote_code,
        )
        kv_dtype = torch.float32 if packed else dtype
        report(f"checking attention of {folder.name}")
        computing = dtype if has_operators and rounds_rows(dtype) else kv_dtype
        layers = probe(model, kv_dtype, device, computing)
        forward: Forward = EagerForward(model)
        if not has_operators:
            return cls(model, layers, kv_dtype, device, forward, GatheredBatch.build, choose)
        assert compile_folder is not None
        forward = _fastest(model, layers, computing, compile_folder, report)
        return cls(model, layers, kv_dtype, device, forward, NativeBatch.build, choice.choose)

    def runner(self, cache: KVCache) -> ModelRunner:
        return ModelRunner(self.forward, cache, self.device, self.build_batch, self.choose)


def _load_operators(folder: Path, report: Callable[[str], None]) -> bool:
    try:
        load(folder, report)
    except (CannotBuild, OSError) as error:
        logger.warning("nothing is compiled, which makes small batches slower: %s", error)
        return False
    return True


def _fastest(
    model: nn.Module,
    layers: list[LayerShape],
    computing: torch.dtype,
    folder: Path,
    report: Callable[[str], None],
) -> Forward:
    """The compiled forward where there is one and it proves right, else the model's own."""
    for forward in (compiled_forward(model, folder, report), EagerForward(model)):
        if forward is not None:
            error = paged_error(
                forward, model, layers, torch.float32, torch.device("cpu"), NativeBatch.build
            )
            if error <= largest_error(computing):
                return forward
            logger.warning("a compiled forward is off by %.2g and is not used", error)
    raise ConfigError("the compiled operators compute wrongly here; set engine.compile to false")
