"""Tiny models, loaded once in a process, and engines assembled from them in no time.

Targets of two kinds of attention, and for each a draft of every kind that a draft can be. The
vocabulary is the printable part of ASCII, so that grammars can be tried on it.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from engine.config import EngineConfig
from engine.core import Engine
from engine.drafters.base import Drafter, NoDrafter
from engine.drafters.cascade import CascadeDrafter
from engine.drafters.model import ModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.executor import LocalExecutor
from engine.grammar import GrammarCompiler
from engine.kv_cache import KVCache, LayerShape
from engine.model import context_limit, load_model, vocab_size
from engine.probe import probe
from engine.runner import EagerForward, ModelRunner
from policy.table import SpeculationTable

TargetName = Literal["full", "window"]
DrafterName = Literal[
    "none", "ngram", "itself", "perturbed", "cascade", "smaller", "larger", "shorter", "trimmed"
]
TARGETS: tuple[TargetName, ...] = get_args(TargetName)
DRAFTERS: tuple[DrafterName, ...] = get_args(DrafterName)

SPECIAL = ("<|bos|>", "<|eos|>", "<|end|>")
EOS = frozenset({1, 2})
CHARACTERS = (*(chr(code) for code in range(ord("!"), ord("~") + 1)), "Ġ", "Ċ")
VOCAB_SIZE = 104
"""Five rows more than the tokenizer has tokens."""
CONTEXT = 64
SHORTER_CONTEXT = 24
TRIMMED = [token for token in range(VOCAB_SIZE) if token % 3]
"""All that the "trimmed" draft, which is the target otherwise, can say."""
CPU = torch.device("cpu")


def ascii_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each printable character; no merges."""
    vocab = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], eos_token=SPECIAL[1]
    )


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    return ascii_tokenizer()


@cache
def _folder(target: TargetName, draft: DrafterName) -> Path:
    """The saved checkpoint; "itself" is the target."""
    folder = Path(_scratch().name) / f"{target}-{draft}"
    model = _random_model(
        target,
        vocab_size={"smaller": VOCAB_SIZE // 2, "larger": VOCAB_SIZE + 40}.get(draft, VOCAB_SIZE),
        max_position_embeddings=SHORTER_CONTEXT if draft == "shorter" else CONTEXT,
    )
    if draft in ("perturbed", "shorter"):
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * parameter.std() * 0.06)
    model.save_pretrained(folder)
    ascii_tokenizer().save_pretrained(folder)
    return folder


@cache
def _scratch() -> "TemporaryDirectory[str]":
    return TemporaryDirectory(prefix="tiny-models-")


def _random_model(target: TargetName, **overrides: Any) -> Any:
    """Weights far from their usual scale, so that greedy texts are varied."""
    config = AutoConfig.for_model(
        {"full": "llama", "window": "mistral"}[target],
        **{
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "initializer_range": 0.25,
            "sliding_window": 7 if target == "window" else None,
            "bos_token_id": 0,
            "eos_token_id": sorted(EOS),
            "pad_token_id": None,
            **overrides,
        },
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]


@cache
def plain_model(target: TargetName) -> Any:
    """The target as transformers itself runs it."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        _folder(target, "itself"), dtype=torch.float32
    )
    return model.eval()


@cache
def compiler(target: TargetName) -> GrammarCompiler:
    return GrammarCompiler(_folder(target, "itself"), VOCAB_SIZE, EOS)


@dataclass(frozen=True)
class _Paged:
    """A model that attends through the block pool."""

    model: nn.Module
    shapes: list[LayerShape]

    def runner(self, num_blocks: int, block_size: int) -> ModelRunner:
        cache = KVCache(self.shapes, num_blocks, block_size, torch.float32, CPU)
        return ModelRunner(EagerForward(self.model), cache, CPU)


@cache
def _paged(target: TargetName, draft: DrafterName) -> _Paged:
    vocabulary = TRIMMED if draft == "trimmed" else None
    model = load_model(_folder(target, draft), torch.float32, CPU, vocabulary=vocabulary)
    return _Paged(model, probe(model, torch.float32, CPU))


def assemble(
    target: TargetName,
    drafter: DrafterName,
    table: SpeculationTable,
    *,
    num_blocks: int,
    block_size: int,
    **sizes: int,
) -> Engine:
    """What `build_engine` makes, from models that are loaded already."""
    config = EngineConfig(
        model=_folder(target, "itself"),
        dtype="float32",
        block_size=block_size,
        num_blocks=num_blocks,
        **sizes,  # type: ignore[arg-type]
    )
    return Engine(
        config,
        executor=LocalExecutor(_paged(target, "itself").runner(num_blocks, block_size)),
        drafter=_drafter(target, drafter, config),
        num_blocks=num_blocks,
        max_model_len=CONTEXT,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=EOS,
        grammars=compiler(target),
        table=table,
    )


def _drafter(target: TargetName, name: DrafterName, config: EngineConfig) -> Drafter:
    if name == "none":
        return NoDrafter()
    lookup = NgramDrafter(max_ngram=3, min_ngram=1)
    if name == "ngram":
        return lookup
    assert config.num_blocks is not None
    draft = _paged(target, "perturbed" if name == "cascade" else name)
    model = ModelDrafter(
        draft.runner(config.num_blocks, config.block_size),
        max_len=context_limit(draft.model),
        draft_vocab=vocab_size(draft.model),
        target_vocab=VOCAB_SIZE,
        vocabulary=TRIMMED if name == "trimmed" else None,
        max_step_tokens=config.max_step_tokens,
    )
    return CascadeDrafter(lookup, model, max_ngram=3) if name == "cascade" else model
