"""`paceline calibrate`, from the command line to the file that engines start from."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from deployments.cli import app
from deployments.config import load_config
from engine.calibrate.cache import load, store
from engine.calibrate.kind import machine_kind
from engine.errors import ConfigError
from policy.cost import Calibration, CostCell
from tests.tiny import save_tiny_llama

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("target"))


def write_config(path: Path, target: Path, **sizes: int) -> Path:
    engine = {"compile": False, "dtype": "float32", "kv_cache_mb": 8, "num_threads": 1, **sizes}
    path.write_text(yaml.safe_dump({"model": str(target), "engine": engine}))
    return path


@pytest.fixture
def config(target: Path, tmp_path: Path) -> Path:
    return write_config(tmp_path / "config.yaml", target, max_num_seqs=2, max_draft_len=2)


def calibrate(*arguments: object) -> str:
    """What the command prints."""
    outcome = CliRunner().invoke(app, ["calibrate", *map(str, arguments)])
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    return outcome.output


def refusal(*arguments: object) -> str:
    outcome = CliRunner().invoke(app, ["calibrate", *map(str, arguments)])
    assert isinstance(outcome.exception, ConfigError), outcome.output
    assert "\n" not in str(outcome.exception)
    return str(outcome.exception)


def test_it_measures_once_tells_all_and_keeps_it(config: Path, home: Path, tmp_path: Path) -> None:
    told, picture = tmp_path / "told.json", tmp_path / "map.png"
    shown = calibrate("--config", config, "--json", told, "--plot", picture)
    for words in ("ms of a round, target+draft", "what pays if", "alpha_b", "gamma", "Kept in"):
        assert words in shown
    assert picture.read_bytes().startswith(b"\x89PNG")

    key = machine_kind(load_config(config).engine_config()).key
    kept = load(home / "calibration", key)
    assert kept is not None
    assert kept.batch_sizes == (1, 2)
    assert kept.draft_lens == (0, 1, 2)

    document = json.loads(told.read_text())
    assert document["calibration"] == json.loads(json.dumps(kept.as_json()))
    assert (document["key"], document["kind"]["drafter"]) == (key, "ngram")
    assert [choice["batch_size"] for choice in document["choices"]] == [1, 2]
    assert document["fit"].keys() >= {"alpha", "beta", "error", "c", "gamma", "power_law_error"}

    before = (home / "calibration" / f"{key}.json").read_bytes()
    assert "Measured before" in calibrate("--config", config)
    assert (home / "calibration" / f"{key}.json").read_bytes() == before
    assert "Measured before" not in calibrate("--config", config, "--again")
    assert (home / "calibration" / f"{key}.json").read_bytes() != before


def test_the_table_follows_the_acceptance_that_is_assumed(
    config: Path, home: Path, tmp_path: Path
) -> None:
    cells = [
        CostCell(size, length, 128, 0.010 * size + 0.004 * size * length, 0.001 * length)
        for size in (1, 2)
        for length in (0, 1, 2)
    ]
    engine = load_config(config).engine_config()
    store(home / "calibration", machine_kind(engine).key, Calibration(tuple(cells)))
    told = {}
    for share in ("0", "0.5", "1"):
        path = tmp_path / f"{share}.json"
        calibrate("--config", config, "--acceptance", share, "--json", path)
        told[share] = json.loads(path.read_text())
    assert {share: one["acceptance"]["survival"] for share, one in told.items()} == {
        "0": [0.0, 0.0],
        "0.5": [0.5, 0.25],
        "1": [1.0, 1.0],
    }
    # 1.5 tokens in 15 ms are as many as 1 in 10: the shorter one is taken; two sequences share a
    # pass of the draft.
    assert {share: one["rungs"] for share, one in told.items()} == {
        "0": [],
        "0.5": [[1, 0], [2, 1]],
        "1": [[2, 2]],
    }


def test_a_damaged_file_is_measured_again(config: Path, home: Path) -> None:
    calibrate("--config", config)
    (kept,) = (home / "calibration").glob("*.json")
    kept.write_bytes(kept.read_bytes()[:100])
    assert "Measured before" not in calibrate("--config", config)
    assert load(home / "calibration", kept.stem) is not None


def test_ctrl_c_stops_and_keeps_nothing(target: Path, home: Path, tmp_path: Path) -> None:
    # Enough to be at it for a while.
    config = write_config(tmp_path / "large.yaml", target, max_num_seqs=512, max_draft_len=16)
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", "from deployments.cli import main; main()"),
            *("calibrate", "--config", str(config)),
        ],
        cwd=ROOT,
        text=True,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PACELINE_HOME": str(home)},
    )
    seen = ""
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            seen += line
            if line.startswith("measuring: 0%"):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130, seen
    assert "Stopped; nothing is kept." in seen
    assert not (home / "calibration").exists()


def test_what_is_wrong_is_said_in_one_line(config: Path, target: Path, tmp_path: Path) -> None:
    assert "there is no folder" in refusal("--config", config, "--json", tmp_path / "a" / "b")
    assert "no/such" in refusal("--model", "./no/such")
    off = tmp_path / "off.yaml"
    off.write_text(yaml.safe_dump({"model": str(target), "drafter": {"kind": "none"}}))
    assert "nothing can be drafted" in refusal("--config", off)
    assert "nothing.yaml" in refusal("--config", tmp_path / "nothing.yaml")


def test_model_and_drafter_stand_in_for_the_configured_ones(config: Path, tmp_path: Path) -> None:
    other = save_tiny_llama(tmp_path / "other")
    save_tiny_llama(other / "draft")
    calibrate(
        *("--config", config, "--model", other, "--drafter", "auto"),
        *("--json", tmp_path / "told.json"),
    )
    kind = json.loads((tmp_path / "told.json").read_text())["kind"]
    assert (kind["model"], kind["drafter"], kind["draft"]) == ("other", "cascade", "draft")
