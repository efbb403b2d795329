"""A draft is shipped without what its target has, and comes out whole."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from deployments.models.catalog import DRAFT, EMBEDDED
from deployments.models.drafts import PACKED, join_draft, pack_draft
from deployments.models.manifest import find_damage, sha256_of, write_manifest
from engine.errors import ConfigError
from engine.vocabulary import FILE, read_vocabulary, vocabulary_text
from tests.tiny import save_perturbed, save_tiny_llama


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return save_tiny_llama(tmp_path / "target")


@pytest.fixture
def draft(target: Path, tmp_path: Path) -> Path:
    """Other layers between the target's embedding and head."""
    folder = save_perturbed(target, tmp_path / "draft", noise=0.1)
    own, theirs = (load_file(path / "model.safetensors") for path in (folder, target))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        own[name] = theirs[name]
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / FILE).write_text(vocabulary_text([1, 5, 7]))
    return folder


def test_what_is_packed_comes_out_as_it_was(target: Path, draft: Path, tmp_path: Path) -> None:
    pack_draft(draft, target, tmp_path / "packed")
    names = load_file(tmp_path / "packed" / PACKED).keys()
    assert "model.layers.0.mlp.up_proj.weight" in names
    assert not {"model.embed_tokens.weight", "lm_head.weight"} & set(names)
    join_draft(tmp_path / "packed", target, tmp_path / "whole")
    before, after = (
        AutoModelForCausalLM.from_pretrained(path).state_dict()
        for path in (draft, tmp_path / "whole")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert read_vocabulary(tmp_path / "whole") == [1, 5, 7]
    vocabs = [AutoTokenizer.from_pretrained(path).get_vocab() for path in (target, draft)]
    assert vocabs[0] == vocabs[1]


def test_another_targets_draft_is_not_packed(draft: Path, tmp_path: Path) -> None:
    other = save_tiny_llama(tmp_path / "other", seed=9)
    with pytest.raises(ConfigError, match="it has no matrix in common with"):
        pack_draft(draft, other, tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_damage_within_a_folder_of_the_model_is_seen(tmp_path: Path) -> None:
    (tmp_path / DRAFT).mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / DRAFT / "config.json").write_text("{}")
    write_manifest(tmp_path, "source", "sha")
    assert find_damage(tmp_path, "sha", checksums=True) is None
    (tmp_path / DRAFT / "config.json").write_text("[]")
    assert find_damage(tmp_path, "sha", checksums=True) == "draft/config.json has another checksum"
    (tmp_path / DRAFT / "config.json").unlink()
    assert find_damage(tmp_path, "sha") == "draft/config.json is missing"


def test_the_shipped_draft_is_the_one_that_is_named() -> None:
    model = EMBEDDED["smollm2-135m"]
    assert model.draft is not None
    assert sha256_of(model.draft / PACKED) == model.draft_sha256
    size = sum(path.stat().st_size for path in model.draft.iterdir())
    assert size <= 20e6


def test_the_embedded_model_has_its_draft(smollm2: Path) -> None:
    folder = smollm2 / DRAFT
    config = json.loads((folder / "config.json").read_text())
    assert config["num_hidden_layers"] == 2
    vocabulary = read_vocabulary(folder)
    assert vocabulary is not None
    draft, target = (load_file(path / "model.safetensors") for path in (folder, smollm2))
    name = "model.embed_tokens.weight"
    assert draft[name].equal(target[name])
