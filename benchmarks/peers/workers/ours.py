"""Paceline's engine, without the server around it."""

from pathlib import Path
from typing import Any

from benchmarks.peers.workers.protocol import Run, serve
from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs


def load(settings: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Settings: `model` and `draft` (or null), folders; `compile_folder`."""
    model = Path(settings["model"])
    draft = settings["draft"]
    config = EngineConfig(
        model=model,
        dtype="bfloat16",
        drafter=DrafterConfig("ngram") if draft is None else DrafterConfig("model", Path(draft)),
        compile_folder=Path(settings["compile_folder"]),
    )
    engine = build_engine(config, SpeculationTable(0, ()), lambda stage: print(stage, flush=True))

    def run(prompts: list[list[int]], new_tokens: int, draft_len: int) -> int:
        engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))
        sampling = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        for index, prompt in enumerate(prompts):
            engine.add(Request(str(index), tuple(prompt), sampling))
        num_tokens = 0
        while engine.has_work:
            num_tokens += sum(len(delta.token_ids) for delta in engine.step())
        return num_tokens

    folders = [model] if draft is None else [model, Path(draft)]
    weights = [file for folder in folders for file in folder.glob("*.safetensors")]
    return run, {
        "weights_bytes": sum(file.stat().st_size for file in weights),
        "kv_cache_bytes": config.kv_cache_bytes,
        "drafter": config.drafter.kind,
    }


if __name__ == "__main__":
    serve(load, "paceline", "torch", "transformers")
