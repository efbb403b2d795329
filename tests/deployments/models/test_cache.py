"""The cache never shows half a model, whatever happens to the process that makes it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.models.cache import ModelCache, default_home
from deployments.models.catalog import EmbeddedModel
from deployments.models.progress import Progress
from engine.errors import ConfigError
from tests.deployments.models.fakes import FAKE, WEIGHTS, build

ROOT = Path(__file__).parents[3]


def num_builds(home: Path) -> int:
    log = home / "builds"
    return len(log.read_text()) if log.exists() else 0


def assert_nothing_but(home: Path, *names: str) -> None:
    assert {path.name for path in (home / "models").iterdir()} == {".fake.lock", *names}


def run_python(code: str, home: Path) -> "subprocess.Popen[str]":
    prelude = (
        "from pathlib import Path\n"
        "from deployments.models.cache import ModelCache\n"
        "from tests.deployments.models.fakes import *\n"
        "from tests.deployments.models.fakes import build\n"
        f"home = Path({str(home)!r})\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_second_get_makes_nothing(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path, build)
    folder = cache.get(FAKE)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert cache.get(FAKE, checksums=True) == folder
    assert num_builds(tmp_path) == 1
    assert_nothing_but(tmp_path, "fake")


@pytest.mark.parametrize("stage", ["start", "half", "end"])
def test_kill_leaves_nothing_broken_and_the_next_run_cleans_up(tmp_path: Path, stage: str) -> None:
    process = run_python(f"ModelCache(home, killed_after({stage!r})).get(FAKE)", tmp_path)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    cache = ModelCache(tmp_path, build)
    assert cache.find_damage(FAKE) == "not there"
    assert any(path.name.startswith(".building-") for path in (tmp_path / "models").iterdir())
    assert cache.find_damage(FAKE, checksums=True) == "not there"
    cache.get(FAKE)
    assert cache.find_damage(FAKE, checksums=True) is None
    assert_nothing_but(tmp_path, "fake")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(model: EmbeddedModel, scratch: Path, into: Path, progress: Progress) -> None:
        build(model, scratch, into, progress)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ModelCache(tmp_path, interrupted).get(FAKE)
    assert_nothing_but(tmp_path)


def test_failed_build_leaves_nothing_and_keeps_its_error(tmp_path: Path) -> None:
    def failing(model: EmbeddedModel, scratch: Path, into: Path, progress: Progress) -> None:
        (into / "config.json").write_text("{}")
        raise ConfigError("model fake: no luck")

    with pytest.raises(ConfigError, match="model fake: no luck"):
        ModelCache(tmp_path, failing).get(FAKE)
    assert_nothing_but(tmp_path)


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    # The first holds the lock, inside its build, until the second says that it is waiting.
    first = run_python(
        "def slow(model, scratch, into, progress):\n"
        "    print('building', flush=True); input()\n"
        "    build(model, scratch, into, progress)\n"
        "ModelCache(home, slow).get(FAKE)\n",
        tmp_path,
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "building\n"
    second = run_python(
        "class Loud:\n"
        "    def say(self, text): print(text, flush=True)\n"
        "print(ModelCache(home, build).get(FAKE, progress=Loud()))\n",
        tmp_path,
    )
    assert second.stdout is not None
    assert second.stdout.readline() == "Another process is making fake; waiting for it\n"
    first.communicate("go on\n")
    said, _ = second.communicate()
    assert (first.returncode, second.returncode) == (0, 0)
    assert said == f"{tmp_path}/models/fake\n"
    assert num_builds(tmp_path) == 1
    assert_nothing_but(tmp_path, "fake")


@pytest.mark.parametrize(
    ("damage", "seen_as"),
    [
        (lambda f: (f / "model.safetensors").write_bytes(b"short"), "has 5 bytes instead of 7000"),
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / "paceline.json").unlink(), "paceline.json is missing"),
        (lambda f: (f / "paceline.json").write_text("[]"), "paceline.json is unreadable"),
        (lambda f: (f / "paceline.json").write_text('{"for'), "paceline.json is unreadable"),
        (
            lambda f: (f / "paceline.json").write_text(
                json.dumps(json.loads((f / "paceline.json").read_text()) | {"format": 0})
            ),
            "made by another version",
        ),
    ],
)
def test_damage_is_noticed_and_repaired(tmp_path: Path, damage: object, seen_as: str) -> None:
    cache = ModelCache(tmp_path, build)
    folder = cache.get(FAKE)
    assert callable(damage)
    damage(folder)
    assert seen_as in (cache.find_damage(FAKE) or "")
    cache.get(FAKE)
    assert cache.find_damage(FAKE, checksums=True) is None
    assert_nothing_but(tmp_path, "fake")


def test_changed_content_of_the_same_size_is_noticed_by_checksums_alone(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path, build)
    weights = cache.get(FAKE) / "model.safetensors"
    weights.write_bytes(b"w" * len(WEIGHTS))
    assert cache.find_damage(FAKE) is None
    assert cache.find_damage(FAKE, checksums=True) == "model.safetensors has another checksum"
    cache.get(FAKE, checksums=True)
    assert weights.read_bytes() == WEIGHTS


def test_home_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("in the way")
    with pytest.raises(ConfigError, match=r"^model fake: cannot write to .*file.models: .*") as got:
        ModelCache(home, build).get(FAKE)
    assert "\n" not in str(got.value)


def test_home_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    assert default_home() == tmp_path
    monkeypatch.delenv("PACELINE_HOME")
    assert default_home() == Path.home() / ".cache" / "paceline"


def test_a_home_that_does_not_exist_or_is_too_long_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PACELINE_HOME", "~nosuchuser/x")
    with pytest.raises(ConfigError, match="PACELINE_HOME must be a folder, got '~nosuchuser/x'"):
        ModelCache()
    monkeypatch.setenv("PACELINE_HOME", "/" + "x" * 5000)
    damage = ModelCache().find_damage(FAKE)
    assert damage is not None
    assert "name too long" in damage
