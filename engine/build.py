"""Assembles an engine from its configuration: models, memory, drafter."""

import logging
import os
from collections.abc import Callable

import torch
from torch import nn

from engine.architecture import require_servable
from engine.config import EngineConfig
from engine.core import Engine
from engine.drafters.base import Drafter, NoDrafter
from engine.drafters.model import ModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.errors import ConfigError
from engine.executor import LocalExecutor
from engine.grammar import GrammarCompiler
from engine.kernels.compiled import compiled_forward
from engine.kernels.gathered import GatheredBatch
from engine.kernels.linear import computes_in_float32
from engine.kernels.native import CannotBuild, NativeBatch, load
from engine.kv_cache import KVCache, LayerShape, bytes_per_block
from engine.model import (
    DTYPES,
    context_limit,
    eos_token_ids,
    load_model,
    vocab_size,
)
from engine.probe import largest_error, paged_error, probe
from engine.runner import EagerForward, Forward, ModelRunner
from engine.tokenizers import require_same_tokens
from policy.table import SpeculationTable

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")


def _silent(_stage: str) -> None:
    pass


def build_engine(
    config: EngineConfig,
    table: SpeculationTable,
    report: Callable[[str], None] = _silent,
    *,
    drafter: Drafter | None = None,
) -> Engine:
    """Load the models and size the memory. `report` is told each stage as it begins. `drafter`
    takes the place of the configured one, for measurements.

    Raises ConfigError when a model can't be loaded, a draft doesn't fit its target, or the KV
    memory is too small for a single sequence.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    device = torch.device(config.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device is 'cuda' but no CUDA device is visible")
    dtype = DTYPES[config.dtype]
    kv_dtype = torch.float32 if computes_in_float32(dtype, device) else dtype

    folders = [config.model]
    if config.drafter.model is not None:
        folders.append(config.drafter.model)
    report("checking architecture")
    for folder in folders:
        require_servable(folder, trust_remote_code=config.trust_remote_code)
    if config.drafter.model is not None:
        report("comparing tokenizers")
        require_same_tokens(config.model, config.drafter.model)
    models = []
    for folder in folders:
        report(f"loading {folder.name}")
        models.append(load_model(folder, dtype, device, trust_remote_code=config.trust_remote_code))
    report("checking attention")
    shapes = [probe(model, kv_dtype, device) for model in models]
    native = computes_in_float32(dtype, device) and _load_operators(config, report)
    forwards = [
        _compiled(config, model, layers, report) if native else EagerForward(model)
        for model, layers in zip(models, shapes, strict=True)
    ]
    report("allocating the KV cache")
    num_blocks = _num_blocks(config, shapes, kv_dtype)
    caches = _allocate(config, shapes, num_blocks, kv_dtype, device)
    build_batch = NativeBatch.build if native else GatheredBatch.build
    runners = [
        ModelRunner(forward, cache, device, build_batch)
        for forward, cache in zip(forwards, caches, strict=True)
    ]
    limit = context_limit(models[0])
    if limit < 2:
        raise ConfigError(f"model {config.model}: its context limit is {limit}; 2 are needed")
    if config.max_model_len is not None:
        if config.max_model_len > limit:
            raise ConfigError(
                f"engine.max_model_len is {config.max_model_len}; the model's limit is {limit}"
            )
        limit = config.max_model_len
    vocab, eos = vocab_size(models[0]), eos_token_ids(config.model, models[0])
    return Engine(
        config,
        executor=LocalExecutor(runners[0]),
        drafter=drafter or _drafter(config, models, runners),
        num_blocks=num_blocks,
        max_model_len=limit,
        vocab_size=vocab,
        eos_token_ids=eos,
        grammars=GrammarCompiler(config.model, vocab, eos),
        table=table,
    )


def _load_operators(config: EngineConfig, report: Callable[[str], None]) -> bool:
    if config.compile_folder is None:
        return False
    try:
        load(config.compile_folder, report)
    except CannotBuild as error:
        logger.warning("nothing is compiled, which makes small batches slower: %s", error)
        return False
    return True


def _compiled(
    config: EngineConfig,
    model: nn.Module,
    shapes: list[LayerShape],
    report: Callable[[str], None],
) -> Forward:
    """The compiled forward where there is one and it proves right, else the model's own."""
    assert config.compile_folder is not None
    forwards = [compiled_forward(model, config.compile_folder, report), EagerForward(model)]
    for forward in forwards:
        if forward is not None:
            error = paged_error(forward, model, shapes, torch.float32, CPU, NativeBatch.build)
            if error <= largest_error(torch.float32):
                return forward
            logger.warning("a forward is off by %.2g and is not used", error)
    raise ConfigError("the compiled operators give wrong results on this machine")


def _drafter(config: EngineConfig, models: list[nn.Module], runners: list[ModelRunner]) -> Drafter:
    match config.drafter.kind:
        case "none":
            return NoDrafter()
        case "ngram":
            return NgramDrafter(
                max_ngram=config.drafter.max_ngram, min_ngram=config.drafter.min_ngram
            )
        case "model":
            return ModelDrafter(
                runners[1],
                max_len=context_limit(models[1]),
                draft_vocab=vocab_size(models[1]),
                target_vocab=vocab_size(models[0]),
                max_step_tokens=config.max_step_tokens,
            )


def _num_blocks(config: EngineConfig, shapes: list[list[LayerShape]], dtype: torch.dtype) -> int:
    """Blocks that fit the memory set aside for the caches of target and draft together."""
    if config.num_blocks is not None:
        return config.num_blocks
    block_bytes = sum(bytes_per_block(layers, config.block_size, dtype) for layers in shapes)
    num_blocks = config.kv_cache_bytes // block_bytes
    if num_blocks < 2:
        raise ConfigError(
            f"engine.kv_cache_mb is too small: {config.kv_cache_bytes} bytes hold {num_blocks} "
            f"blocks of {block_bytes} bytes, and 2 are needed"
        )
    return num_blocks


def _allocate(
    config: EngineConfig,
    shapes: list[list[LayerShape]],
    num_blocks: int,
    dtype: torch.dtype,
    device: torch.device,
) -> list[KVCache]:
    total = num_blocks * sum(bytes_per_block(s, config.block_size, dtype) for s in shapes)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        # Pages of zeros are granted before they exist: asking for too much would end later, and
        # by the kernel's hand.
        if device.type == "cpu" and total > memory:
            raise MemoryError(f"this machine has {memory} bytes")
        return [KVCache(s, num_blocks, config.block_size, dtype, device) for s in shapes]
    except (RuntimeError, MemoryError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"engine.kv_cache_mb asks for {total} bytes of KV cache: {reason}"
        ) from error
