"""`paceline bench characterize` on a tiny random model, from the options to the report."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deployments.bench.compare import compare
from deployments.bench.results import environment
from deployments.commands.bench import bench_app
from engine.errors import ConfigError
from tests.tiny import save_tiny_llama
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = byte_level_tokenizer()
    save_tiny_llama(folder, vocab_size=len(tokenizer), max_position_embeddings=1024)
    tokenizer.save_pretrained(folder)
    return folder


def characterize(model: Path, out: Path, *options: str) -> Result:
    small = ["--batch-sizes", "1,2", "--lengths", "2", "--new-tokens", "8", "--repeats", "1"]
    how = ["--drafter", "ngram", "--dtype", "float32", "--device", "cpu", "--no-compile"]
    return CliRunner().invoke(
        bench_app,
        ["characterize", "--model", str(model), "--out", str(out), *small, *how, *options],
        catch_exceptions=False,
    )


def test_the_grid_is_measured_written_and_found_again(model: Path, tmp_path: Path) -> None:
    result = characterize(model, tmp_path / "run")
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "run" / "characterize.json").read_text())
    assert document["is_complete"]
    assert document["plan"]["model"] == "tiny"
    assert [row["batch_size"] for row in document["batch_sizes"]] == [1, 2]
    measured = tmp_path / "run" / "characterize.measured.jsonl"
    before = measured.read_text()
    assert len(before.splitlines()) == 4
    assert characterize(model, tmp_path / "run").exit_code == 0
    assert measured.read_text() == before
    with pytest.raises(ConfigError, match="repeats was 1 and is now 2"):
        characterize(model, tmp_path / "run", "--repeats", "2")
    with pytest.raises(ConfigError, match="kv_cache_mb was 1024 and is now 512"):
        characterize(model, tmp_path / "run", "--kv-cache-mb", "512")


def test_a_run_on_the_cpu_beside_a_gpu_is_told_as_one_of_the_cpu(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "GPU 9000")
    assert environment()["gpu"] == environment("cuda")["gpu"] == "GPU 9000"
    assert characterize(model, tmp_path / "run").exit_code == 0
    document = json.loads((tmp_path / "run" / "characterize.json").read_text())
    assert document["plan"]["device"] == "cpu"
    assert "GPU 9000" not in (tmp_path / "run" / "characterize.md").read_text()
    on_gpu = {**document, "environment": {**document["environment"], "gpu": "GPU 9000"}}
    with pytest.raises(ConfigError, match='two machines: gpu was null and is now "GPU 9000"'):
        compare(document, on_gpu, across_machines=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--lengths", "0"), "--lengths must be numbers from 1 to 16"),
        (("--batch-sizes", "x"), "--batch-sizes must be numbers from 1 to 1024"),
        (("--drafter", "model"), "--draft: must name a draft model"),
        (("--draft", "small"), "--draft is for --drafter model or cascade"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    model: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        characterize(model, tmp_path / "run", *options)


def test_results_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ConfigError, match="holds no results"):
        CliRunner().invoke(
            bench_app, ["compare", *[str(tmp_path / "a.json")] * 2], catch_exceptions=False
        )
