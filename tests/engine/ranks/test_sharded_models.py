"""What is sharded computes the same, and what can't be sharded is refused."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.engine.ranks.spmd import FAILS_ON_ONE_RANK
from tests.engine.test_models import SERVED

ROOT = Path(__file__).parents[3]
WAIT_S = 400.0
REFUSED = (
    *("gpt2", "phi3", "phi3, window", "codegen", "olmo2", "olmo3", "olmoe"),
    *("falcon, one KV head (7B)", "cohere", "stablelm", "afmoe"),
)
"""DeepSpeed shards these wrongly or not at all."""


def in_step(what: str, folder: Path) -> dict[str, str]:
    """What rank 0 of two says."""
    command = [sys.executable, "-m", "tests.engine.ranks.spmd", what]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("wb") as log:
        first = subprocess.Popen(
            [*command, "0", "0", str(folder)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + WAIT_S
            while not (folder / "port").exists():
                assert first.poll() is None, (folder / "log").read_text()[-3000:]
                assert time.monotonic() < deadline
                time.sleep(0.05)
            port = (folder / "port").read_text()
            second = subprocess.Popen(
                [*command, "1", port, str(folder)], cwd=ROOT, env=environment, stderr=log
            )
            try:
                told, _ = first.communicate(timeout=WAIT_S)
            finally:
                second.kill()
                second.wait()
        finally:
            first.kill()
            first.communicate()
    assert first.returncode == 0, (folder / "log").read_text()[-3000:]
    found: dict[str, str] = json.loads(told.decode().splitlines()[-1])
    return found


def test_every_family_that_is_sharded_says_what_it_says_alone(tmp_path: Path) -> None:
    found = in_step("families", tmp_path)
    assert {*found, *FAILS_ON_ONE_RANK} == SERVED.keys()
    for name, said in found.items():
        if name in REFUSED:
            assert "cannot be served" in said, f"{name}: {said}"
            assert "2 ranks" in said, f"{name}: {said}"
        else:
            assert said == "equal", f"{name}: {said}"


def test_every_request_gets_what_it_would_get_alone_over_two_ranks(tmp_path: Path) -> None:
    assert in_step("master", tmp_path) == {"scenarios": "equal"}
