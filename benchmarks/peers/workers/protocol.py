"""A worker's side of the pipe: JSON lines in and out. Standard library only.

In: first the settings, one object; then requests `{"prompts": [[id, ...], ...], "new_tokens": n,
"draft_len": k}`, where null lets the worker choose. Out: `{"ready": true, "versions": {...}, ...}`,
then for each request `{"seconds": s, "num_tokens": n, "rss_bytes": b}`. Instead of either:
`{"error": "why"}`.
"""

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Run = Callable[[list[list[int]], int, int | None], int]
"""(prompts, new tokens, draft length or None to choose it): greedy tokens for all prompts at once,
EOS ignored. Returns how many new tokens there were, over all prompts."""
Load = Callable[[dict[str, Any]], tuple[Run, dict[str, Any]]]
"""From the settings to what runs requests, and facts for the ready message."""

_PR_SET_PDEATHSIG = 1


def serve(load: Load, *packages: str) -> None:
    """Load, then answer requests until stdin ends. `packages`: whose versions are told."""
    # A stopped worker would outlive a killed benchmark for ever.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints goes to the log

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    try:
        run, facts = load(json.loads(sys.stdin.readline()))
        versions = {package: version(package) for package in packages}
        answer({"ready": True, "versions": versions, **facts})
    except Exception as error:
        answer(_refusal(error))
        return
    for line in sys.stdin:
        request = json.loads(line)
        try:
            started = time.perf_counter()
            num_tokens = run(request["prompts"], request["new_tokens"], request["draft_len"])
            seconds = time.perf_counter() - started
            answer({"seconds": seconds, "num_tokens": num_tokens, "rss_bytes": _rss_bytes()})
        except Exception as error:
            answer(_refusal(error))


def left_padded(prompts: list[list[int]], pad: int) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids and attention mask of one rectangular batch."""
    longest = max(map(len, prompts))
    ids = [[pad] * (longest - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return ids, mask


def _refusal(error: Exception) -> dict[str, str]:
    traceback.print_exception(error)
    reason = (str(error).strip().splitlines() or [""])[0]
    return {"error": f"{type(error).__name__}: {reason}"}


def _rss_bytes() -> int:
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE")
