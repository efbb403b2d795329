"""The first half of a distillation: the target is asked, and what it says is kept as it comes."""

import time
from collections.abc import Sequence
from pathlib import Path

from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.distill.answers import Interviewer
from engine.distill.config import (
    ASKING_SHARE,
    DistillationConfig,
    Interrupted,
    Watcher,
    is_held_out,
)
from engine.distill.samples import Sample, SampleStore
from engine.distill.sources import Source
from engine.distill.work import Spent
from engine.errors import ConfigError
from engine.model import load_tokenizer
from policy.table import SpeculationTable

_STORE_EVERY_S = 30.0


def ask(
    config: DistillationConfig, sources: Sequence[Source], work: Path, watcher: Watcher
) -> list[Sample]:
    """The samples of as many sources as the time allows, those of an earlier call included.

    Raises Interrupted when the watcher wants an end, ConfigError when too little came.
    """
    store = SampleStore(work / "samples")
    samples = list(store)
    done = {sample.source for sample in samples}
    spent = Spent(work / "asking.json")
    limit_s = None if config.minutes is None else 60 * config.minutes * ASKING_SHARE
    todo = [(index, source) for index, source in enumerate(sources) if index not in done]
    # Held-out ones are spread over the whole, so that an end at any time leaves some.
    if todo and (limit_s is None or spent.seconds < limit_s):
        fresh: list[Sample] = []
        num_labels = sum(sample.num_labels for sample in samples)
        interviewer = _interviewer(config, watcher)
        started = stored = time.monotonic()
        for found in interviewer.samples(todo):
            fresh += found
            num_labels += sum(sample.num_labels for sample in found)
            done |= {sample.source for sample in found}
            watcher.asking(len(done), len(sources), num_labels)
            now = time.monotonic()
            is_over = limit_s is not None and spent.seconds + now - started >= limit_s
            if now - stored >= _STORE_EVERY_S or is_over or watcher.stopped:
                store.append(fresh)
                spent.add(now - started)
                samples += fresh
                fresh, started, stored = [], now, now
                if watcher.stopped:
                    raise Interrupted
                if is_over:
                    break
        store.append(fresh)
        samples += fresh
    # By source: learned from in the same order, however often the asking was interrupted.
    samples = sorted((s for s in samples if s.num_labels > 0), key=lambda sample: sample.source)
    kept = {is_held_out(sample.source, len(sources)) for sample in samples}
    if kept != {True, False}:
        raise ConfigError(
            f"{len({sample.source for sample in samples})} of {len(sources)} prompts were answered"
            f"{'' if config.minutes is None else f' in the half of --minutes {config.minutes:g}'}, "
            "too few to learn from some and test on others"
        )
    return samples


def _interviewer(config: DistillationConfig, watcher: Watcher) -> Interviewer:
    engine = build_engine(
        EngineConfig(
            model=config.target,
            drafter=DrafterConfig(kind="none"),
            dtype=config.dtype,
            device=config.device,
            max_num_seqs=config.width,
            kv_cache_bytes=config.kv_cache_bytes,
            compile_folder=config.compile_folder,
            trust_remote_code=config.trust_remote_code,
        ),
        SpeculationTable(0, ()),
        watcher.stage,
    )
    tokenizer = load_tokenizer(config.target)
    return Interviewer(engine, tokenizer, max_tokens=config.max_answer, width=config.width)
