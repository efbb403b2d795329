"""Whose commit is told."""

import subprocess
from pathlib import Path

import pytest

from deployments.revision import commit
from deployments.simulate.report import environment


def repository(folder: Path) -> Path:
    folder.mkdir()
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def test_the_commit_is_that_of_its_own_repository_only(tmp_path: Path) -> None:
    own = repository(tmp_path / "own")
    found = commit(own)
    assert found is not None
    assert len(found) == 12
    (own / "new").write_text("")
    subprocess.run(["git", "add", "new"], cwd=own, check=True)
    assert commit(own) == f"{found}-dirty"
    installed = own / "venv" / "site-packages"
    installed.mkdir(parents=True)
    assert commit(installed) is None
    assert commit(tmp_path) is None


def test_without_git_no_commit_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment()["commit"] is None
