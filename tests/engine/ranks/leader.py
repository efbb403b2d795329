"""Rank 0 in a process of its own, as a process can be one only once: does what it is told, and
prints what came of it as JSON.

python -m tests.engine.ranks.leader FOLDER ACTION
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.errors import PacelineError
from engine.ranks.launch import Processes
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.harness import greedy

WAIT_S = 30.0
PROMPTS = {"short": [3, 4], "long": [(7 * i) % 300 + 3 for i in range(40)], "other": [5, 6, 5, 6]}
NEW_TOKENS = 20


def main() -> None:
    folder, action = Path(sys.argv[1]), sys.argv[2]
    ranks = Processes("tests.engine.ranks.bad_rank" if action == "start" else "engine.ranks.follow")
    config = EngineConfig(
        folder,
        DrafterConfig(kind="ngram", min_ngram=1),
        dtype="float32",
        block_size=4,
        num_blocks=256,
        num_threads=1,
        tp_size=2,
    )
    told: dict[str, Any] = {"stages": []}
    try:
        engine = build_engine(
            config, SpeculationTable(0, fixed_rungs(3)), told["stages"].append, ranks=ranks
        )
        try:
            told.update(_do(engine, action, ranks.pids[1]))
        finally:
            engine.close()
    except PacelineError as error:
        told["error"], told["type"] = str(error), type(error).__name__
    told["left"] = [pid for pid in ranks.pids.values() if Path(f"/proc/{pid}").exists()]
    print(json.dumps(told), flush=True)
    os._exit(0)  # threads of a broken group would keep the process


def _do(engine: Engine, action: str, pid: int) -> dict[str, Any]:
    told: dict[str, Any] = {"texts": _texts(engine, lambda steps: None)}
    if action == "idle":
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + WAIT_S
        while engine.failure is None and time.monotonic() < deadline:
            threading.Event().wait(0.02)
    elif action in ("KILL", "STOP"):
        stopped_s = 0.0

        def stop(steps: int) -> None:
            nonlocal stopped_s
            if steps == 4:
                os.kill(pid, getattr(signal, f"SIG{action}"))
                stopped_s = time.monotonic()

        try:
            _texts(engine, stop)
        except PacelineError as failed:
            told["raised"] = str(failed)
        told["noticed_s"] = time.monotonic() - stopped_s
    return {**told, "failure": engine.failure}


def _texts(engine: Engine, before_step: Callable[[int], None]) -> dict[str, list[int]]:
    for name, prompt in PROMPTS.items():
        engine.add(greedy(name, prompt, NEW_TOKENS))
    texts: dict[str, list[int]] = {name: [] for name in PROMPTS}
    steps = 0
    while engine.has_work:
        before_step(steps)
        for delta in engine.step():
            texts[delta.request_id] += delta.token_ids
        steps += 1
    return texts


if __name__ == "__main__":
    main()
