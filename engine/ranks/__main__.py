"""An engine over several ranks, without Ray, to look into what it does: answers one prompt.

python -m engine.ranks FOLDER --tp-size 2 --prompt "Once upon a time"
"""

import argparse
import time
from pathlib import Path

from engine.build import build_engine
from engine.config import DrafterConfig, DtypeName, EngineConfig
from engine.errors import PacelineError
from engine.model import load_tokenizer
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs


class Options(argparse.Namespace):
    model: Path
    tp_size: int
    dtype: DtypeName
    device: str
    prompt: str
    max_tokens: int
    draft_len: int
    num_threads: int
    kv_cache_mb: int


def main() -> None:
    """Start the ranks as children of this process, answer, end them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a folder in Hugging Face format")
    parser.add_argument("--tp-size", type=int, default=2)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--draft-len", type=int, default=0, help="looked up in the text")
    parser.add_argument("--num-threads", type=int, default=1, help="of each rank")
    parser.add_argument("--kv-cache-mb", type=int, default=64, help="of each rank")
    options = parser.parse_args(namespace=Options())
    try:
        _answer(options)
    except PacelineError as error:
        parser.exit(2, f"{error}\n")


def _answer(options: Options) -> None:
    config = EngineConfig(
        options.model,
        DrafterConfig(),
        dtype=options.dtype,
        device=options.device,
        num_threads=options.num_threads,
        kv_cache_bytes=options.kv_cache_mb * 2**20,
        tp_size=options.tp_size,
    )
    tokenizer = load_tokenizer(options.model)
    prompt = tuple(tokenizer.encode(options.prompt))
    table = SpeculationTable(0, fixed_rungs(options.draft_len))
    engine = build_engine(config, table, lambda stage: print(stage, flush=True))
    try:
        sampling = SamplingParams(max_tokens=options.max_tokens, temperature=0.0)
        engine.add(Request("prompt", prompt, sampling))
        started, tokens = time.perf_counter(), list[int]()
        while engine.has_work:
            for delta in engine.step():
                tokens += delta.token_ids
        seconds = time.perf_counter() - started
    finally:
        engine.close()
    print(tokenizer.decode(tokens))
    print(f"{len(tokens)} tokens in {seconds:.2f} s")


if __name__ == "__main__":
    main()
