"""Whether the engine is right on a GPU, and what its rounds cost there: one script, 8 minutes.

No files, no network, neither Ray nor DeepSpeed: models are made at random on the device.

- attention over the block pool against plain attention (`engine/probe.py`), in each dtype;
- losslessness: texts with drafts of a model against texts without, greedy and sampled. In float32
  they must be equal. In bf16 the shape of a batch changes the rounding; where texts part, the two
  tokens must be nearly tied, which is looked up in float32's logits of the same weights;
- seconds of a target pass and of drafting, for batches of 1 to 64 and drafts of 0 to 8, of a pair
  of about 7B and 0.2B parameters in bf16, by the engine's own calibration.

`--tiny` takes small models, so that the script itself can be tried on a CPU. A captured CUDA graph
is not replayed, as none is built.
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from deployments.bench.results import Goal, print_goals, write_json
from engine import attention
from engine.calibrate.grid import Grid
from engine.calibrate.measure import calibrate
from engine.config import EngineConfig
from engine.core import Engine
from engine.drafters.base import Drafter, NoDrafter
from engine.drafters.model import ModelDrafter
from engine.executor import LocalExecutor
from engine.grammar import GrammarCompiler
from engine.interface import attending_with
from engine.kv_cache import KVCache
from engine.noise import gumbel, hashes, keys, uniform
from engine.probe import largest_error, paged_error, probe
from engine.request import Request, SamplingParams
from engine.runner import EagerForward, ModelRunner
from policy.cost import Calibration
from policy.table import SpeculationTable, fixed_rungs

BLOCK_SIZE = 16
DRAFT_LENS = (0, 1, 2, 3, 4, 6, 8)
SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
LARGE: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
DRAFT: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}
VOCAB_SIZE = 32_000
CONTEXT = 2048
NUM_PROMPTS, PROMPT_LEN, NEW_TOKENS = 16, 24, 48
MOST_GAP = 0.05
"""Of two tokens that are nearly tied: a share of the spread of the logits."""


class Options(argparse.Namespace):
    json: Path | None
    quick: bool
    tiny: bool
    device: str
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a shorter calibration")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=240.0, help="of calibration, at most")
    args = parser.parse_args(namespace=Options())
    console, device = Console(), torch.device(args.device)
    attention.register()
    goals, results = [], dict[str, Any]()
    started = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"{time.monotonic() - started:5.0f} s  {what}", markup=False)

    for dtype in (torch.float32, torch.bfloat16):
        tell(f"attention over the block pool, {dtype}")
        model = random_model(SMALL, dtype, device)
        error = paged_error(EagerForward(model), model, probe(model, dtype, device), dtype, device)
        goals.append(
            Goal(
                f"paged attention, {dtype}: error",
                f"<= {largest_error(dtype):g}",
                error,
                error <= largest_error(dtype),
            )
        )
        for temperature in (0.0, 1.0):
            tell(f"losslessness, {dtype}, temperature {temperature:g}")
            parted, gap = compare(dtype, device, temperature)
            name = f"texts that part, {dtype}, temperature {temperature:g}"
            if dtype == torch.float32:
                goals.append(Goal(name, "0", parted, parted == 0))
            else:
                results[name] = parted
                goals.append(Goal(f"{name}: largest gap", f"<= {MOST_GAP}", gap, gap <= MOST_GAP))
    tell("making the pair")
    sizes = (SMALL, SMALL) if args.tiny else (LARGE, DRAFT)
    batch_sizes = (1, 2, 4) if args.tiny else (1, 2, 4, 8, 16, 32, 64)
    engine = pair(*sizes, torch.bfloat16, device, max_num_seqs=batch_sizes[-1])
    tell("what rounds cost")
    cost = calibrate(
        engine,
        Grid(batch_sizes, DRAFT_LENS, (512,)),
        max_seconds=60.0 if args.quick or args.tiny else args.seconds,
    )
    show(console, cost)
    results["cells"] = [asdict(cell) for cell in cost.cells]
    results["seconds"] = time.monotonic() - started
    if args.json is not None:
        write_json(args.json, {"benchmark": "gpu_check", "device": args.device, **results}, goals)
    print_goals(console, goals)


def random_model(shape: dict[str, Any], dtype: torch.dtype, device: torch.device) -> nn.Module:
    """Of that shape; the same weights for every dtype, but for rounding."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE, max_position_embeddings=CONTEXT, tie_word_embeddings=True, **shape
    )
    torch.manual_seed(0)
    with device:
        model: nn.Module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config,
            # Large ones are made in their own dtype, as float32 would take twice the memory.
            dtype=torch.float32 if shape is SMALL else dtype,
            attn_implementation=attention.ATTENTION_NAME,
        )
    return model.to(dtype).eval().requires_grad_(False)


def engine_of(
    target: nn.Module,
    draft: nn.Module | None,
    dtype: torch.dtype,
    device: torch.device,
    *,
    max_num_seqs: int,
) -> Engine:
    """An engine around models that are there already."""
    config = EngineConfig(
        Path(),
        device=device.type,
        max_num_seqs=max_num_seqs,
        block_size=BLOCK_SIZE,
        max_step_tokens=max(512, 2 * max_num_seqs),
    )
    num_blocks = max_num_seqs * (CONTEXT // 2 // BLOCK_SIZE)

    def runner(model: nn.Module) -> ModelRunner:
        shapes = probe(model, dtype, device)
        cache = KVCache(shapes, num_blocks, BLOCK_SIZE, dtype, device)
        return ModelRunner(EagerForward(model), cache, device)

    drafter: Drafter = NoDrafter()
    if draft is not None:
        drafter = ModelDrafter(
            runner(draft),
            max_len=CONTEXT,
            draft_vocab=VOCAB_SIZE,
            target_vocab=VOCAB_SIZE,
            vocabulary=None,
            max_step_tokens=config.max_step_tokens,
        )
    return Engine(
        config,
        executor=LocalExecutor(runner(target)),
        drafter=drafter,
        num_blocks=num_blocks,
        max_model_len=CONTEXT,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=frozenset(),
        grammars=GrammarCompiler(Path(), VOCAB_SIZE, frozenset()),
        table=SpeculationTable(0, ()),
    )


def pair(
    target: dict[str, Any],
    draft: dict[str, Any],
    dtype: torch.dtype,
    device: torch.device,
    *,
    max_num_seqs: int,
) -> Engine:
    return engine_of(
        random_model(target, dtype, device),
        random_model(draft, dtype, device),
        dtype,
        device,
        max_num_seqs=max_num_seqs,
    )


def compare(dtype: torch.dtype, device: torch.device, temperature: float) -> tuple[int, float]:
    """Texts that part when drafts of 4 are made by a draft that is right at times, and the largest
    gap between the two tokens where they do."""
    target = random_model(SMALL, dtype, device)
    draft = random_model(SMALL, dtype, device)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * 0.03)
    engine = engine_of(target, draft, dtype, device, max_num_seqs=NUM_PROMPTS)
    plain, drafted = (texts(engine, length, temperature) for length in (0, 4))
    reference = random_model(SMALL, torch.float32, device)
    gaps = [
        gap_at(reference, prompt, one, other, seed, temperature)
        for seed, (prompt, one, other) in enumerate(zip(prompts(), plain, drafted, strict=True))
        if one != other
    ]
    return len(gaps), max(gaps, default=0.0)


def prompts() -> list[list[int]]:
    return [
        [(31 * i + 17 * index + 5) % VOCAB_SIZE for i in range(PROMPT_LEN)]
        for index in range(NUM_PROMPTS)
    ]


def texts(engine: Engine, draft_len: int, temperature: float) -> list[list[int]]:
    engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))
    found: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts()):
        sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=temperature, seed=index)
        found[str(index)] = []
        engine.add(Request(str(index), tuple(prompt), sampling))
    while engine.has_work:
        for delta in engine.step():
            found[delta.request_id] += delta.token_ids
    return list(found.values())


@torch.inference_mode()
def gap_at(
    model: nn.Module,
    prompt: list[int],
    one: list[int],
    other: list[int],
    seed: int,
    temperature: float,
) -> float:
    """Between the first two tokens that differ, as a share of the spread of the logits: by how much
    a logit must be off for the other to win, its noise included."""
    place = next(i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
    text = [*prompt, *one[:place]]
    tokens = torch.tensor([text], device=next(model.parameters()).device)
    with attending_with(model, "eager"):
        output: Any = model(input_ids=tokens, use_cache=False)
    logits = output.logits[0, -1].float()
    rivals = [one[place], other[place]]
    scores = logits[rivals]
    if temperature > 0:
        at = keys([(seed, len(text))] * 2)
        noise = gumbel(uniform(hashes(at, np.array(rivals, dtype=np.uint32))))
        scores = scores + temperature * torch.from_numpy(noise).to(scores)
    return float((scores[0] - scores[1]).abs() / logits.std())


def show(console: Console, cost: Calibration) -> None:
    table = Table(title="ms of a round: target + drafting; 512 tokens of context")
    cells = {(cell.batch_size, cell.draft_len): cell for cell in cost.cells}
    for column in ("batch", *(f"length {s}" for s in DRAFT_LENS)):
        table.add_column(column, justify="right")
    for size in cost.batch_sizes:
        found = [cells.get((size, s)) for s in DRAFT_LENS]
        table.add_row(
            str(size),
            *(
                "-"
                if cell is None
                else f"{1e3 * cell.target_seconds:.3g} + {1e3 * cell.draft_seconds:.3g}"
                for cell in found
            ),
        )
    console.print(table)


if __name__ == "__main__":
    main()
