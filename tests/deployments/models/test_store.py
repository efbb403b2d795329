"""What a person may write as a model, and what they are told when it isn't there."""

from pathlib import Path

import pytest

from deployments.models.cache import ModelCache
from deployments.models.catalog import EMBEDDED
from deployments.models.store import find_folder, resolve_model
from engine.errors import ConfigError
from tests.deployments.models.fakes import build


def refusal(name: str, cache: ModelCache | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_model(name, key="drafter.model", cache=cache)
    message = str(caught.value)
    assert message.startswith("drafter.model: ")
    assert repr(name) in message
    assert "\n" not in message
    return message


def test_embedded_model_is_found_when_it_was_made(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path, build)
    assert "run: paceline models get smollm2-135m" in refusal("smollm2-135m", cache)
    folder = cache.get(EMBEDDED["smollm2-135m"])
    assert resolve_model("smollm2-135m", cache=cache) == folder
    (folder / "config.json").unlink()
    assert "config.json is missing" in refusal("smollm2-135m", cache)


def test_local_folder_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "org" / "model"
    folder.mkdir(parents=True)
    assert "holds no config.json" in refusal(str(folder))
    (folder / "config.json").write_text("{}")
    assert resolve_model(str(folder)) == folder
    monkeypatch.chdir(tmp_path)
    assert resolve_model("org/model") == folder
    assert "is a file" in refusal(str(folder / "config.json"))


@pytest.mark.parametrize("name", ["./nothing", "/nothing/here", "~/nothing-here-at-all", "../no"])
def test_missing_folder_is_said_to_be_missing(name: str) -> None:
    assert "there is no folder" in refusal(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("~nosuchuser/x", "no such user"), ("x" * 5000, "name too long"), ("x/" * 5000, "too long")],
)
def test_a_path_that_cannot_be_followed_is_one_short_line(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"^drafter.model: can't look into .*{reason}") as caught:
        resolve_model(name, key="drafter.model")
    assert len(str(caught.value)) < 500
    assert find_folder(name) is None


@pytest.mark.parametrize("name", ["", "nothing", "a/b/c", "what ever"])
def test_name_of_no_form_lists_what_there_is(name: str) -> None:
    assert "smollm2-135m" in refusal(name)


def test_hub_name_without_network_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert "cannot get 'some-org/some-model' from the hub" in refusal("some-org/some-model")


def test_hub_model_needs_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def downloaded(name: str, **patterns: object) -> str:
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", downloaded)
    assert "holds no config.json" in refusal("some-org/some-model")
    (tmp_path / "config.json").write_text("{}")
    assert "holds no safetensors" in refusal("some-org/some-model")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert resolve_model("some-org/some-model") == tmp_path
