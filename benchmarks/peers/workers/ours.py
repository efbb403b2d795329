"""Paceline's engine, without the server around it."""

from typing import Any

from benchmarks.adaptation import Adaptation, introduced_board, put_in_force
from benchmarks.peers.workers.protocol import Run, serve
from deployments.bench.settle import settle
from deployments.config import parse_config
from engine.build import build_engine
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs


def load(settings: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Settings: `config`, as a replica has it; `quick`: calibrate in short."""
    config = parse_config(settings["config"], "options").engine_config()

    def tell(stage: str) -> None:
        print(stage, flush=True)

    engine = build_engine(config, SpeculationTable(0, ()), tell)
    board = introduced_board(engine, config, tell, is_quick=settings["quick"])
    adaptation = Adaptation(engine, board)
    settle()

    def run(prompts: list[list[int]], new_tokens: int, draft_len: int | None) -> int:
        if draft_len is None:
            adaptation.begin()
        else:
            put_in_force(engine, SpeculationTable(0, fixed_rungs(draft_len)))
        sampling = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        for index, prompt in enumerate(prompts):
            engine.add(Request(str(index), tuple(prompt), sampling))
        num_tokens = 0
        while engine.has_work:
            num_tokens += sum(len(delta.token_ids) for delta in engine.step())
            if draft_len is None:
                adaptation.after_step()
        if draft_len is None:
            adaptation.end()
        return num_tokens

    folders = [folder for folder in (config.model, config.drafter.model) if folder is not None]
    weights = [file for folder in folders for file in folder.glob("*.safetensors")]
    return run, {
        "weights_bytes": sum(file.stat().st_size for file in weights),
        "kv_cache_bytes": config.kv_cache_bytes,
        "drafter": config.drafter.kind,
    }


if __name__ == "__main__":
    serve(load, "paceline", "torch", "transformers")
