"""Both ranks of a group run the same engine in step, over their own parts of each model: so that
many models, and many scenarios, take one group of processes.

python -m tests.engine.ranks.spmd families|master RANK PORT FOLDER
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.distributed as dist

from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.drafters.ngram import NgramDrafter
from engine.errors import ConfigError
from engine.executor import LocalExecutor
from engine.grammar import GrammarCompiler
from engine.model import context_limit, vocab_size
from engine.probe import probe
from engine.ranks import group
from engine.ranks.shard import load_shard, sharded
from engine.ranks.spec import RankSpec
from engine.sizing import allocate
from policy.table import SpeculationTable, fixed_rungs
from tests.engine import tiny_models
from tests.engine.families import save
from tests.engine.harness import greedy, run, texts, tiny_engine
from tests.engine.replay import check
from tests.engine.scenario import draw_scenario
from tests.engine.test_models import NEW_TOKENS, PROMPTS, SERVED

CPU = torch.device("cpu")
SCENARIOS = 24
FAILS_ON_ONE_RANK = ("gpt_bigcode",)
"""The other would wait for it."""
NGRAM = DrafterConfig(kind="ngram", min_ngram=1)


def families(folder: Path, rank: int) -> dict[str, str]:
    """What became of each family: "equal", "differs" or why it is refused."""
    names = [name for name in SERVED if name not in FAILS_ON_ONE_RANK]
    for name in names:
        model_type, overrides = SERVED[name]
        if rank == 0:
            save(model_type, _folder(folder, name), overrides)
    dist.barrier()
    return {name: _family(_folder(folder, name)) for name in names}


def _folder(folder: Path, name: str) -> Path:
    return folder / name.replace(",", "")


def _family(folder: Path) -> str:
    requests = [greedy(one, prompt, NEW_TOKENS) for one, prompt in PROMPTS.items()]
    alone = tiny_engine(folder, draft_len=3, drafter=NGRAM)
    expected = texts(run(alone, requests))
    try:
        engine = _sharded_engine(folder)
    except ConfigError as error:
        return str(error)
    return "equal" if texts(run(engine, requests)) == expected else "differs"


def _sharded_engine(folder: Path) -> Engine:
    config = EngineConfig(folder, NGRAM, dtype="float32", block_size=4, num_blocks=256)
    loaded = load_shard(folder, "float32", CPU, lambda stage: None, 2)
    (cache,) = allocate(config, [loaded], 256)
    vocab = vocab_size(loaded.model)
    return Engine(
        config,
        executor=LocalExecutor(loaded.runner(cache)),
        drafter=NgramDrafter(max_ngram=3, min_ngram=1),
        num_blocks=256,
        max_model_len=context_limit(loaded.model),
        vocab_size=vocab,
        eos_token_ids=frozenset(),
        grammars=GrammarCompiler(folder, vocab, frozenset()),
        table=SpeculationTable(0, fixed_rungs(3)),
    )


def master(folder: Path, rank: int) -> dict[str, str]:
    """The master test's scenarios, its targets sharded."""
    paged = tiny_models._paged
    parts: dict[str, Any] = {}
    for target in tiny_models.TARGETS:
        from engine.model import load_model

        whole = load_model(tiny_models._folder(target, "itself"), torch.float32, CPU, pack=False)
        part = sharded(whole, 2, torch.float32, CPU)
        parts[target] = tiny_models._Paged(part, probe(part, torch.float32, CPU))

    def of_part(target: Any, draft: Any) -> Any:
        return parts[target] if draft == "itself" else paged(target, draft)

    tiny_models._paged = of_part  # type: ignore[assignment]
    for seed in range(SCENARIOS):
        check(draw_scenario(Random(seed)))
    return {"scenarios": "equal"}


def main() -> None:
    what, rank, port, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    spec = RankSpec(rank, 2, "127.0.0.1", port, 0, "")
    store = None
    if rank == 0:
        store = group.make_store("127.0.0.1", 2)
        (folder / "port.new").write_text(str(store.port))
        (folder / "port.new").rename(folder / "port")
        spec = replace(spec, store_port=store.port)
    if what == "master":
        # Models are saved by one rank alone once there is a group, and these are each rank's own.
        for target in tiny_models.TARGETS:
            for drafter in tiny_models.DRAFTERS:
                table = SpeculationTable(0, ())
                tiny_models.assemble(target, drafter, table, num_blocks=8, block_size=4)
            tiny_models.plain_model(target)
    group.join(spec, CPU, store)
    found = {"families": families, "master": master}[what](folder, rank)
    if rank == 0:
        print(json.dumps(found), flush=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
