"""Assembles an engine from its configuration: models, memory, drafter."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import torch
from torch import nn

from engine.architecture import require_servable
from engine.config import EngineConfig
from engine.core import Engine
from engine.drafters.base import Drafter, NoDrafter
from engine.drafters.cascade import CascadeDrafter
from engine.drafters.model import ModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.errors import ConfigError
from engine.executor import LocalExecutor
from engine.grammar import GrammarCompiler
from engine.kernels.huge_pages import use_huge_pages
from engine.loaded import LoadedModel
from engine.memory import require_room_for
from engine.model import DTYPES, context_limit, eos_token_ids, vocab_size
from engine.ranks.executor import RankedExecutor
from engine.ranks.group import least
from engine.ranks.launch import Processes, Ranks
from engine.ranks.lead import Led, lead
from engine.runner import ModelRunner
from engine.sizing import allocate, num_blocks_of
from engine.tokenizers import require_same_tokens
from engine.vocabulary import read_vocabulary
from policy.table import SpeculationTable

HUGE_PAGES_THREAD = "huge-pages"


def _silent(_stage: str) -> None:
    pass


def build_engine(
    config: EngineConfig,
    table: SpeculationTable,
    report: Callable[[str], None] = _silent,
    *,
    drafter: Drafter | None = None,
    ranks: Ranks | None = None,
    host: str = "127.0.0.1",
) -> Engine:
    """Load the models and size the memory. `report` is told each stage as it begins. `drafter`
    takes the place of the configured one, for measurements. With `config.tp_size` above 1, `ranks`
    starts the other ranks (by default as children of this process), and they reach this one at
    `host`; a process can do so once.

    Raises ConfigError when a model can't be loaded, a draft doesn't fit its target, or the KV
    memory is too small for a single sequence; RankFailed when another rank fails.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    device = torch.device(config.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device is 'cuda' but no CUDA device is visible")
    folders: list[Path] = [config.model]
    vocabularies: list[list[int] | None] = [None]
    if config.drafter.model is not None:
        folders.append(config.drafter.model)
        vocabularies.append(read_vocabulary(config.drafter.model))
    report("checking architecture")
    for folder in folders:
        require_servable(folder, trust_remote_code=config.trust_remote_code)
    require_room_for(
        folders, DTYPES[config.dtype], device, trust_remote_code=config.trust_remote_code
    )
    if config.drafter.model is not None:
        report("comparing tokenizers")
        require_same_tokens(config.model, config.drafter.model)
    led = None
    if config.tp_size > 1:
        led = lead(config, Processes() if ranks is None else ranks, host, report)
    try:
        return _assemble(config, table, report, drafter, led, folders, vocabularies)
    except BaseException:
        if led is not None:
            led.end()
        raise


def _assemble(
    config: EngineConfig,
    table: SpeculationTable,
    report: Callable[[str], None],
    drafter: Drafter | None,
    led: Led | None,
    folders: list[Path],
    vocabularies: list[list[int] | None],
) -> Engine:
    device = torch.device(config.device)
    loaded = [] if led is None else [led.target]
    loaded += [
        LoadedModel.load(
            folder,
            config.dtype,
            device,
            report,
            compile_folder=config.compile_folder,
            vocabulary=vocabulary,
            trust_remote_code=config.trust_remote_code,
        )
        for folder, vocabulary in list(zip(folders, vocabularies, strict=True))[len(loaded) :]
    ]
    report("allocating the KV cache")
    num_blocks = num_blocks_of(config, loaded)
    if led is not None:
        num_blocks = least(num_blocks)
    caches = allocate(config, loaded, num_blocks)
    if config.compile_folder is not None and device.type == "cpu":
        # Moving takes from 5 to 20 s, which no start should wait for.
        Thread(target=use_huge_pages, name=HUGE_PAGES_THREAD, daemon=True).start()
    runners = [one.runner(cache) for one, cache in zip(loaded, caches, strict=True)]
    models = [one.model for one in loaded]
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
        executor=LocalExecutor(runners[0]) if led is None else RankedExecutor(runners[0], led),
        drafter=drafter or _drafter(config, models, runners, vocabularies[-1]),
        num_blocks=num_blocks,
        max_model_len=limit,
        vocab_size=vocab,
        eos_token_ids=eos,
        grammars=GrammarCompiler(config.model, vocab, eos),
        table=table,
    )


def _drafter(
    config: EngineConfig,
    models: list[nn.Module],
    runners: list[ModelRunner],
    vocabulary: list[int] | None,
) -> Drafter:
    wanted = config.drafter
    lookup = NgramDrafter(
        max_ngram=wanted.max_ngram, min_ngram=wanted.min_ngram, foresight=config.max_draft_len
    )
    match wanted.kind:
        case "none":
            return NoDrafter()
        case "ngram":
            return lookup
    model = ModelDrafter(
        runners[1],
        max_len=context_limit(models[1]),
        draft_vocab=vocab_size(models[1]),
        target_vocab=vocab_size(models[0]),
        vocabulary=vocabulary,
        max_step_tokens=config.max_step_tokens,
    )
    if wanted.kind == "model":
        return model
    return CascadeDrafter(lookup, model, max_ngram=wanted.max_ngram)
