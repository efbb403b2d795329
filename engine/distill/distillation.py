"""From a target and prompts to a draft's folder: ask, cut, train, write; goes on where it stopped.

What is not finished lies in `OUT.work` beside the folder that is wanted: samples, checkpoint and
history. The same call goes on with it; when the draft is written, it is removed.
"""

import dataclasses
import hashlib
import shutil
from pathlib import Path
from typing import Any

from engine.distill.asking import ask
from engine.distill.config import DistillationConfig, Distilled, Watcher
from engine.distill.folder import require_new
from engine.distill.learning import learn
from engine.distill.sources import Own, Source, read_prompts, read_text
from engine.distill.work import only_process, require_same
from engine.errors import ConfigError
from engine.model import load_tokenizer

_PIECE_TOKENS = 256
"""Of a running text."""


def distil(config: DistillationConfig, watcher: Watcher) -> Distilled:
    """Make the draft. Raises Interrupted, ConfigError for what can't be honoured, OSError when the
    disk is full; in each case the work so far is kept beside `out`."""
    require_new(config.out)
    work = config.out.with_name(f"{config.out.name}.work")
    watcher.stage("reading prompts")
    sources = _sources(config)
    with only_process(work):
        require_same(work, _plan(config, len(sources)))
        samples = ask(config, sources, work, watcher)
        distilled = learn(config, samples, len(sources), work, watcher)
    shutil.rmtree(work, ignore_errors=True)
    return distilled


def _sources(config: DistillationConfig) -> list[Source]:
    tokenizer = load_tokenizer(config.target)
    sources: list[Source] = []
    for path in config.prompts:
        sources += read_prompts(path)
    for path in config.texts:
        sources += read_text(path, tokenizer, _PIECE_TOKENS)
    sources += [Own()] * config.own_prompts
    if len(sources) < 2:
        raise ConfigError(
            f"--prompts, --text and --own-prompts give {len(sources)} prompt; at least 2 are "
            "needed, of which one is not learned from"
        )
    return sources


def _plan(config: DistillationConfig, num_sources: int) -> dict[str, Any]:
    """What must be the same for a distillation to be gone on with."""
    return {
        "target": str(config.target.absolute()),
        "sources": [_checksum(path) for path in (*config.prompts, *config.texts)],
        "num_sources": num_sources,
        "layers": config.layers if isinstance(config.layers, int) else list(config.layers),
        "vocabulary": config.vocabulary,
        "max_answer": config.max_answer,
        "training": dataclasses.asdict(config.training),
    }


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
