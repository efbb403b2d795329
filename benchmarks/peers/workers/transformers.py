"""transformers: generate, generate with prompt lookup, or generate_batch."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from benchmarks.peers.workers.protocol import Run, left_padded, serve

PAGE_TOKENS = 256
NUM_PAGES = 36
BATCH_TOKENS = 8192
"""Room for 16 sequences of two pages, prefilled in one go. More would cost it time."""


def load(settings: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Settings: `model`, a folder; `mode` ("generate", "lookup", "generate_batch")."""
    # A CPU without bf16 arithmetic would multiply bf16 in a slow loop; float32 holds it exactly.
    native = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    dtype = torch.bfloat16 if native else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=dtype)
    model.generation_config.eos_token_id = None
    run = _batching(model) if settings["mode"] == "generate_batch" else _generating(model, settings)
    return run, {"dtype": str(dtype).removeprefix("torch.")}


def _generating(model: Any, settings: dict[str, Any]) -> Run:
    def run(prompts: list[list[int]], new_tokens: int, draft_len: int) -> int:
        extra = {"prompt_lookup_num_tokens": draft_len} if settings["mode"] == "lookup" else {}
        ids, mask = (torch.tensor(rows) for rows in left_padded(prompts, 0))
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
                **extra,
            )
        return int(output.shape[0] * (output.shape[1] - ids.shape[1]))

    return run


def _batching(model: Any) -> Run:
    memory = ContinuousBatchingConfig(
        page_size=PAGE_TOKENS,
        num_blocks=NUM_PAGES,
        max_batch_tokens=BATCH_TOKENS,
        allow_block_sharing=False,  # no prompt comes twice
    )

    def run(prompts: list[list[int]], new_tokens: int, draft_len: int) -> int:
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        outputs = model.generate_batch(
            prompts,
            generation_config=config,
            continuous_batching_config=memory,
            max_new_tokens=new_tokens,
            persistent_manager=True,
        )
        return sum(len(output.generated_tokens) for output in outputs.values())

    return run


if __name__ == "__main__":
    serve(load, "transformers", "torch")
