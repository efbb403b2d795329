"""An engine over two processes: the same texts, and no rank that goes unnoticed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.config import DrafterConfig
from tests.engine.families import save
from tests.engine.harness import greedy, run, texts, tiny_engine
from tests.engine.ranks.leader import NEW_TOKENS, PROMPTS
from tests.tiny import save_tiny_llama

ROOT = Path(__file__).parents[3]
NOTICED_S = 5.0 + 5.0
"""Five seconds are promised; a machine that is busy may take as long again."""


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three KV heads for two ranks."""
    folder = tmp_path_factory.mktemp("uneven")
    return save_tiny_llama(
        folder, num_attention_heads=9, num_key_value_heads=3, hidden_size=72, head_dim=8
    )


def lead(folder: Path, action: str) -> dict[str, Any]:
    before = set(os.listdir("/dev/shm"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.ranks.leader", str(folder), action],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    told: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    assert told["left"] == [], "processes were left behind"
    assert set(os.listdir("/dev/shm")) <= before, "files were left in shared memory"
    return told


@pytest.fixture(scope="module")
def expected(uneven: Path) -> dict[str, list[int]]:
    """One process."""
    alone = tiny_engine(uneven, draft_len=3, drafter=DrafterConfig(kind="ngram", min_ngram=1))
    requests = [greedy(name, prompt, NEW_TOKENS) for name, prompt in PROMPTS.items()]
    return texts(run(alone, requests))


@pytest.mark.parametrize(
    ("action", "reason"),
    [("KILL", "rank 1 is gone: its process"), ("STOP", "rank 1 hangs: it was not heard of")],
)
def test_two_ranks_say_what_one_says_and_one_that_stops_in_mid_step_is_named(
    uneven: Path, expected: dict[str, list[int]], action: str, reason: str
) -> None:
    told = lead(uneven, action)
    assert told["texts"] == expected
    assert told["raised"].startswith(reason)
    assert told["failure"] == told["raised"]
    assert told["noticed_s"] < NOTICED_S
    assert any(stage.startswith("rank 1: loading") for stage in told["stages"])
    assert "rank 1: ready" in told["stages"]


def test_a_rank_that_dies_while_there_is_nothing_to_do_is_named_too(
    uneven: Path, expected: dict[str, list[int]]
) -> None:
    told = lead(uneven, "idle")
    assert told["texts"] == expected
    assert told["failure"].startswith("rank 1 is gone: its process")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raises", "rank 1 failed: MemoryError: 3 GiB were asked for"),
        ("dies", "rank 1 is gone: its process"),
        ("refuses to connect", "rank 1 failed in start-up: its process"),
    ],
)
def test_a_rank_that_fails_in_start_up_is_named(
    uneven: Path, tmp_path: Path, fault: str, reason: str
) -> None:
    folder = tmp_path / fault
    folder.symlink_to(uneven)
    told = lead(folder, "start")
    assert told["type"] == "RankFailed"
    assert told["error"].startswith(reason)


def test_a_model_that_can_not_be_sharded_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    """This one fails on one rank alone, and the other is not left to wait for it."""
    save("gpt_bigcode", tmp_path, {})
    told = lead(tmp_path, "texts")
    assert "model type 'gpt_bigcode' cannot be served: DeepSpeed can't shard it" in told["error"]
    assert not any("loading" in stage for stage in told["stages"])
