"""Calibrations on disk: what is not whole, or not of this machine and pair, is not used."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.calibrate import cache, kind
from engine.calibrate.cache import load, measured_at_unix_s, store
from engine.calibrate.kind import machine_kind
from engine.config import DrafterConfig, EngineConfig
from policy.cost import Calibration, CostCell

KEY = "0123abcd"
CALIBRATION = Calibration(
    tuple(
        CostCell(size, s, 128, 0.01 * size + 0.001 * s, 0.002 * s)
        for size in (1, 2)
        for s in (0, 1, 3)
    )
)


def test_what_was_stored_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "calibration"
    assert store(folder, KEY, CALIBRATION, description={"device": "this one"})
    assert load(folder, KEY) == CALIBRATION
    assert json.loads((folder / f"{KEY}.json").read_text())["about"] == {"device": "this one"}
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.json"]


def test_when_it_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured_at_unix_s(tmp_path, KEY) is None
    monkeypatch.setattr("time.time", lambda: 1234.0)
    store(tmp_path, KEY, CALIBRATION)
    assert measured_at_unix_s(tmp_path, KEY) == 1234.0
    for damaged in ("", "[]", "{}", '{"measured_at_unix_s": null}'):
        (tmp_path / f"{KEY}.json").write_text(damaged)
        assert measured_at_unix_s(tmp_path, KEY) is None


def test_nothing_stored_is_nothing_to_warn_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(tmp_path, KEY) is None
    assert load(tmp_path / "nowhere", KEY) is None
    assert not caplog.records


def edited(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        told = json.loads(content)
        change(told)
        return json.dumps(told).encode()

    return edit


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: content[: len(content) // 2], id="truncated"),
        pytest.param(lambda content: b"\xff\xfe" + content, id="not text"),
        pytest.param(lambda content: b"\0" * len(content), id="zeros"),
        pytest.param(lambda content: b"[]", id="no object"),
        pytest.param(lambda content: b"[" * 100_000, id="nested"),
        pytest.param(edited(lambda told: told.update(key="4567")), id="of another kind"),
        pytest.param(edited(lambda told: told.update(format=0)), id="of another version"),
        pytest.param(edited(lambda told: told.pop("calibration")), id="without a calibration"),
        pytest.param(edited(lambda told: told.update(calibration={"cells": []})), id="no cells"),
        pytest.param(edited(lambda told: told.update(calibration=[1, 2])), id="no calibration"),
    ],
)
def test_a_damaged_file_is_none_and_is_written_anew(
    damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path, KEY, CALIBRATION)
    path = tmp_path / f"{KEY}.json"
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING, cache.__name__):
        assert load(tmp_path, KEY) is None
    assert f"{path} is not used and will be measured again" in caplog.text
    assert store(tmp_path, KEY, CALIBRATION)
    assert load(tmp_path, KEY) == CALIBRATION


def test_what_cannot_be_read_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / f"{KEY}.json").mkdir()
    assert load(tmp_path, KEY) is None
    assert "is not used" in caplog.text


def test_a_disk_that_cannot_be_written_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert not store(tmp_path / "file" / "calibration", KEY, CALIBRATION)
    assert "can't be written; the next start measures again" in caplog.text

    def full(*_arguments: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    store(tmp_path, KEY, CALIBRATION)
    monkeypatch.setattr("os.fsync", full)
    other = replace(CALIBRATION, cells=CALIBRATION.cells[:3])
    assert not store(tmp_path, KEY, other)
    assert load(tmp_path, KEY) == CALIBRATION, "a failed write must leave the old file whole"


# ---- what keeps kinds apart


@pytest.fixture
def pair(tmp_path: Path) -> EngineConfig:
    for name in ("target", "draft"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"name": name}))
        (folder / "model.safetensors").write_bytes(b"x" * 10)
    (tmp_path / "draft" / "draft_vocabulary.json").write_text('{"token_ids": [1]}')
    return EngineConfig(
        tmp_path / "target", DrafterConfig("cascade", tmp_path / "draft"), num_threads=2
    )


def test_equal_engines_are_of_one_kind_wherever_their_folders_lie(
    pair: EngineConfig, tmp_path: Path
) -> None:
    first = machine_kind(pair)
    assert machine_kind(replace(pair, max_num_waiting=3)) == first
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "target").rename(tmp_path / "elsewhere" / "target")
    assert machine_kind(replace(pair, model=moved)) == first
    assert first.description["model"] == "target"
    assert "2 threads" in str(first.description["device"])
    assert json.loads(json.dumps(dict(first.description))) == first.description


def test_whatever_changes_the_cost_makes_another_kind(
    pair: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [machine_kind(pair).key]

    def note(changed: EngineConfig = pair) -> None:
        keys.append(machine_kind(changed).key)

    for change in (
        {"dtype": "float32"},
        {"num_threads": 1},
        {"max_draft_len": 4},
        {"max_num_seqs": 8},
        {"max_model_len": 128},
        {"block_size": 32},
        {"compile_folder": Path("compiled")},
        {"drafter": replace(pair.drafter, kind="model")},
        {"drafter": DrafterConfig("ngram")},
    ):
        note(replace(pair, **change))
    draft = pair.drafter.model
    assert draft is not None
    for folder in (pair.model, draft):
        (folder / "model.safetensors").write_bytes(b"x" * 11)
        note()
        (folder / "more.safetensors").write_bytes(b"")
        note()
        (folder / "config.json").write_text("{}")
        note()
    (draft / "draft_vocabulary.json").write_text('{"token_ids": [1, 2]}')
    note()
    compiled = replace(pair, compile_folder=Path("compiled"))
    note(compiled)
    monkeypatch.setattr(kind, "source_digest", lambda: "other operators")
    note(compiled)
    monkeypatch.setattr(kind, "_cpu_model", lambda: "another CPU")
    note()
    monkeypatch.setattr(kind, "version", lambda name: "0.0")
    note()
    monkeypatch.setattr(kind, "FORMAT", kind.FORMAT + 1)
    note()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    note(replace(pair, device="cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "another GPU")
    note(replace(pair, device="cuda"))
    assert len(set(keys)) == len(keys)


def test_a_cpu_without_a_name_has_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kind._cpu_model()
    monkeypatch.setattr(Path, "read_text", lambda path: "")
    assert kind._cpu_model()
