"""OpenVINO GenAI on an F16 GGUF: plain, with prompt lookup, or with a draft model."""

from typing import Any

import numpy as np
import openvino  # type: ignore[import-not-found, unused-ignore]
import openvino_genai as genai  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.workers.protocol import Run, left_padded, serve

MAX_NGRAM = 3
"""As long as the engine's own n-gram drafter looks up."""


def load(settings: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Settings: `gguf`; `mode` ("plain", "lookup", "draft"); `draft`, a folder with an IR."""
    scheduler: Any = genai.SchedulerConfig()
    # Its own default for one pipeline is no limit at all; 256 is the default of the object.
    scheduler.max_num_batched_tokens = 1 << 16
    # No prompt comes twice: the prefix cache could only cost it time and memory.
    scheduler.enable_prefix_caching = False
    extra: dict[str, Any] = {}
    match settings["mode"]:
        case "lookup":
            extra["prompt_lookup"] = True
        case "draft":
            extra["draft_model"] = genai.draft_model(settings["draft"], "CPU")
    pipeline: Any = genai.LLMPipeline(settings["gguf"], "CPU", scheduler_config=scheduler, **extra)

    def run(prompts: list[list[int]], new_tokens: int, draft_len: int | None) -> int:
        config: Any = genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        if settings["mode"] != "plain":
            config.num_assistant_tokens = draft_len
        if settings["mode"] == "lookup":
            config.max_ngram_size = MAX_NGRAM
        ids, mask = (
            openvino.Tensor(np.array(rows, dtype=np.int64)) for rows in left_padded(prompts, 0)
        )
        output = pipeline.generate(genai.TokenizedInputs(ids, mask), config)
        return sum(map(len, output.tokens))

    return run, {}


if __name__ == "__main__":
    serve(load, "openvino-genai", "openvino")
