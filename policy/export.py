"""A measured schedule in the configuration keys of other engines, for people who run those.

- vLLM: `num_speculative_tokens_per_batch_size`, a list of [first, last, length], in the JSON of
  `--speculative-config` (docs/features/speculative_decoding/dynamic_speculative_decoding.md in
  vllm-project/vllm). The first range starts at 1; batch sizes past the last range keep its length;
  no length is above `num_speculative_tokens`, which is at least 1.
- SGLang: the JSON file of `--speculative-adaptive-config`, smallest batch size -> candidates for
  `speculative_num_steps` (docs/advanced_features/adaptive_speculative_decoding.md and
  python/sglang/srt/speculative/adaptive_spec_params.py in sgl-project/sglang). With one candidate
  the length is fixed. Only EAGLE and EAGLE3 with top-k 1.
- TensorRT-LLM: `draft_len_schedule`, largest batch size -> length, under `speculative_config` in
  the YAML of `--config` (tensorrt_llm/llmapi/llm_args.py in NVIDIA/TensorRT-LLM, as of pull request
  10860). Batch sizes past the last key draft nothing; the smallest key's length must equal
  `max_draft_len`, and no other may be above it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from policy.quoting import shown
from policy.table import SpeculationTable

ExportFormat = Literal["vllm", "sglang", "tensorrt-llm"]

Rungs = Sequence[tuple[int, int]]
"""(largest batch size, draft length in tokens), as in `SpeculationTable`."""
Span = tuple[int, int, int]
"""First and last batch size, and the draft length in tokens at them."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A piece of another engine's configuration."""

    text: str
    """The file's content; JSON has no comments, so whatever is to be said is in `notes`."""
    notes: tuple[str, ...]
    """What to add, and what could not be expressed; one sentence each."""


def export(rungs: Rungs, max_batch: int, format: str) -> Exported:
    """The schedule for batch sizes 1 to `max_batch`. Raises ValueError for bad arguments."""
    if format not in _WRITERS:
        raise ValueError(
            f"format must be one of {', '.join(get_args(ExportFormat))}, got {shown(format)}"
        )
    if max_batch < 1:
        raise ValueError(f"max_batch must be at least 1, got {max_batch}")
    spans = spans_of(rungs, max_batch)
    exported = _WRITERS[format](spans)
    if any(length for _, _, length in spans):
        return exported
    unused = "The schedule drafts nothing: without any speculative configuration the same is faster"
    return Exported(exported.text, (*exported.notes, f"{unused}."))


def spans_of(rungs: Rungs, max_batch: int) -> list[Span]:
    """Batch sizes 1 to `max_batch` in stretches of one length, those above the rungs included.

    Raises ValueError when `rungs` are not those of a table.

    >>> spans_of([(2, 4), (4, 4), (8, 2)], 32)
    [(1, 4, 4), (5, 8, 2), (9, 32, 0)]
    """
    table = SpeculationTable(version=0, rungs=tuple((size, length) for size, length in rungs))
    spans: list[Span] = []
    first = 1
    for largest, length in [*table.rungs, (max_batch, 0)]:
        last = min(largest, max_batch)
        if last < first:
            continue
        if spans and spans[-1][2] == length:
            spans[-1] = (spans[-1][0], last, length)
        else:
            spans.append((first, last, length))
        first = last + 1
    return spans


def _vllm(spans: Sequence[Span]) -> Exported:
    longest = max(length for _, _, length in spans)
    ranges = ",\n    ".join(json.dumps(span) for span in spans)
    text = (
        f'{{\n  "num_speculative_tokens": {max(1, longest)},\n'
        f'  "num_speculative_tokens_per_batch_size": [\n    {ranges}\n  ]\n}}\n'
    )
    return Exported(
        text,
        (
            "Add your method and model and pass it as --speculative-config.",
            "vLLM counts all requests of a step, those that compute prompts too.",
            "vLLM ignores the schedule under data parallelism.",
        ),
    )


def _sglang(spans: Sequence[Span]) -> Exported:
    slots = ",\n  ".join(
        f'"{first}": {{"candidate_steps": [{length}]}}' for first, _, length in spans
    )
    start = max(1, spans[0][2])
    notes = [
        "Pass it as --speculative-adaptive-config FILE, with --speculative-adaptive "
        f"--speculative-eagle-topk 1 --speculative-num-steps {start} "
        f"--speculative-num-draft-tokens {start + 1}; --speculative-algorithm must be EAGLE or "
        "EAGLE3.",
        "With one candidate per batch size SGLang follows the schedule and adapts nothing.",
        "SGLang rounds a batch size up to that of a CUDA graph before it looks it up.",
    ]
    if any(length == 0 for _, _, length in spans):
        notes.append(
            "A release that refuses 0 among candidate_steps can't stop drafting: write 1 there."
        )
    return Exported(f"{{\n  {slots}\n}}\n", tuple(notes))


def _tensorrt_llm(spans: Sequence[Span]) -> Exported:
    longest = spans[0][2]
    notes = [
        "Add decoding_type and speculative_model, and pass the file as --config.",
        "Keys are largest batch sizes, as since pull request 10860; earlier releases read them as "
        "smallest ones.",
    ]
    cut = [(first, last, length) for first, last, length in spans if length > longest]
    if cut:
        notes.append(
            f"TensorRT-LLM takes no length above that at batch size 1 ({longest}): cut were "
            + ", ".join(f"{length} at {first} to {last}" for first, last, length in cut)
            + "."
        )
    lines = [*(f"# {note}" for note in notes), "speculative_config:"]
    lines += [f"  max_draft_len: {longest}", "  draft_len_schedule:"]
    lines += [
        f"    {last}: {min(length, longest)}  # {first} to {last}" for first, last, length in spans
    ]
    return Exported("\n".join(lines) + "\n", tuple(notes))


_WRITERS: dict[str, Callable[[Sequence[Span]], Exported]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
}
