"""What a rank needs of the host's memory while it loads and shards a model: peaks, by tp size.

Private memory is what a rank needs for itself. Pages of the checkpoint's file are shared by all
ranks of a node, and are given back when memory is short.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.options import Options, parser
from benchmarks.progress import measuring
from deployments.bench.results import write_json
from tests.tiny_tokenizer import byte_level_tokenizer

TP_SIZES = (1, 2, 4)
VOCAB_SIZE = 384
KV_CACHE_MB = 16
LAYERS, QUICK_LAYERS = 32, 4
POLL_S = 0.02
RANK = b"engine.ranks"
FIELDS = {"private_mb": "RssAnon", "file_mb": "RssFile"}


def main() -> None:
    args = parser(__doc__).parse_args(namespace=Options())
    console = Console()
    with tempfile.TemporaryDirectory() as folder, measuring(console, 2 + len(TP_SIZES)) as begin:
        begin("writing a model")
        model_mb = _write_model(Path(folder), QUICK_LAYERS if args.quick else LAYERS)
        begin("imports alone")
        bare = _peaks([sys.executable, "-c", "import deepspeed, engine.build"])
        rows: list[dict[str, Any]] = []
        for tp_size in TP_SIZES:
            begin(f"tp size {tp_size}")
            rows.append({"tp_size": tp_size, "ranks": _run(Path(folder), tp_size, args.dtype)})
    table = Table(title=f"peak memory of a rank, MB; weights {model_mb:,.0f} MB, {args.dtype}")
    for column in ("tp size", "rank", "private", "of the checkpoint's file and libraries"):
        table.add_column(column, justify="right")
    table.add_row("", "imports alone", *(f"{bare[0][name]:,.0f}" for name in FIELDS))
    for row in rows:
        for rank, peaks in enumerate(row["ranks"]):
            table.add_row(
                str(row["tp_size"]), str(rank), *(f"{peaks[name]:,.0f}" for name in FIELDS)
            )
    console.print(table)
    if args.json is not None:
        found = {"model_mb": model_mb, "imports": bare[0], "rows": rows, "dtype": args.dtype}
        write_json(args.json, {"benchmark": "rank_memory", **found}, [])


def _write_model(folder: Path, layers: int) -> float:
    """A random model in bf16; its size in MB."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        max_position_embeddings=256,
    )
    model: Any = LlamaForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    byte_level_tokenizer(VOCAB_SIZE).save_pretrained(folder)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 2**20


def _run(folder: Path, tp_size: int, dtype: str) -> list[dict[str, Any]]:
    options = ["--tp-size", tp_size, "--dtype", dtype, "--max-tokens", 2]
    options += ["--kv-cache-mb", KV_CACHE_MB]
    return _peaks([sys.executable, "-m", "engine.ranks", folder, *options])


def _peaks(command: list[Any]) -> list[dict[str, Any]]:
    """Of the process and its children of the same program, in the order in which they began."""
    peaks: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen([str(part) for part in command], stdout=told, stderr=told)
        while process.poll() is None:
            for pid in [process.pid, *_children(process.pid)]:
                for name, megabytes in _memory(pid).items():
                    of_process = peaks.setdefault(pid, dict.fromkeys(FIELDS, 0.0))
                    of_process[name] = max(of_process[name], megabytes)
            time.sleep(POLL_S)
        if process.returncode:
            told.seek(0)
            raise SystemExit(told.read().decode(errors="replace"))
    return list(peaks.values())


def _children(pid: int) -> list[int]:
    """Those that are ranks."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [
            int(child)
            for child in found
            if b"engine.ranks" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
    except OSError:
        return []


def _command_line(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _memory(pid: int) -> dict[str, float]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    return {
        name: int(told[field].split()[0]) / 1024 for name, field in FIELDS.items() if field in told
    }


if __name__ == "__main__":
    main()
