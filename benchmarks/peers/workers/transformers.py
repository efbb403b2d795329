"""transformers: generate, generate with prompt lookup or a draft model, or generate_batch."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from benchmarks.peers.workers.protocol import Run, left_padded, serve

PAGE_TOKENS = 256
NUM_PAGES = 36
BATCH_TOKENS = 8192
"""Room for 16 sequences of two pages, prefilled in one go. More would cost it time."""


def load(settings: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Settings: `model`, a folder; `mode` ("generate", "lookup", "assisted", "generate_batch");
    `draft`, a folder, for "assisted"."""
    # A CPU without bf16 arithmetic would multiply bf16 in a slow loop; float32 holds it exactly.
    native = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    dtype = torch.bfloat16 if native else torch.float32
    model = _model(settings["model"], dtype)
    match settings["mode"]:
        case "generate_batch":
            run = _batching(model)
        case "assisted":
            run = _assisted(model, _model(settings["draft"], dtype))
        case "lookup":
            run = _generating(model, lambda n: {"prompt_lookup_num_tokens": n})
        case _:
            run = _generating(model, lambda _: {})
    return run, {"dtype": str(dtype).removeprefix("torch.")}


def _model(folder: str, dtype: torch.dtype) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.generation_config.eos_token_id = None
    return model


def _assisted(model: Any, assistant: Any) -> Run:
    def extra(draft_len: int | None) -> dict[str, Any]:
        assistant.generation_config.num_assistant_tokens = draft_len
        return {"assistant_model": assistant}

    return _generating(model, extra)


def _generating(model: Any, extra: Callable[[int | None], dict[str, Any]]) -> Run:
    """`extra`: further arguments for a draft length."""

    def run(prompts: list[list[int]], new_tokens: int, draft_len: int | None) -> int:
        ids, mask = (torch.tensor(rows) for rows in left_padded(prompts, 0))
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
                **extra(draft_len),
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

    def run(prompts: list[list[int]], new_tokens: int, draft_len: int | None) -> int:
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
