"""A draft's tokenizer: the same ids for the same tokens, and the same cuts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ConfigError
from engine.tokenizers import require_same_tokens
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("target", "draft"):
        byte_level_tokenizer().save_pretrained(tmp_path / name)
    return tmp_path / "target", tmp_path / "draft"


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    path = folder / "tokenizer.json"
    values: dict[str, Any] = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    return values


def difference(folders: tuple[Path, Path]) -> str:
    with pytest.raises(ConfigError, match=r"drafter\.model .*: its tokenizer differs") as caught:
        require_same_tokens(*folders)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_same_tokenizer(folders: tuple[Path, Path]) -> None:
    require_same_tokens(*folders)


def test_the_first_differing_token_is_shown(folders: tuple[Path, Path]) -> None:
    def swap(values: dict[str, Any]) -> None:
        vocab = values["model"]["vocab"]
        tokens = {token_id: token for token, token_id in vocab.items()}
        for a, b in ((300, 301), (320, 321)):
            vocab[tokens[a]], vocab[tokens[b]] = b, a

    values = edit(folders[1], swap)
    token = next(t for t, i in values["model"]["vocab"].items() if i == 301)
    other = next(t for t, i in values["model"]["vocab"].items() if i == 300)
    first = min((token, 300, 301), (other, 301, 300))
    assert (
        f"token {first[0]!r}: the target has it as {first[1]}, the draft has it as {first[2]} "
        f"(4 tokens differ)" in difference(folders)
    )


def test_a_token_that_one_lacks(folders: tuple[Path, Path]) -> None:
    added = {
        "id": 384,
        "content": "<|tool|>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    edit(folders[1], lambda values: values["added_tokens"].append(added))
    assert "token '<|tool|>': the target has none, the draft has it as 384" in difference(folders)


def reverse_merges(values: dict[str, Any]) -> None:
    values["model"]["merges"].reverse()


def normalise(values: dict[str, Any]) -> None:
    values["normalizer"] = {"type": "NFKC"}


def prefix_a_space(values: dict[str, Any]) -> None:
    values["pre_tokenizer"]["add_prefix_space"] = True


def strip_around(values: dict[str, Any]) -> None:
    values["added_tokens"][2]["lstrip"] = True


@pytest.mark.parametrize("change", [reverse_merges, normalise, prefix_a_space, strip_around])
def test_equal_vocabularies_that_cut_differently(
    folders: tuple[Path, Path], change: Callable[[dict[str, Any]], object]
) -> None:
    edit(folders[1], change)
    assert "for the target and" in difference(folders)


def no_post_processor(values: dict[str, Any]) -> None:
    values["post_processor"] = None


def truncate(values: dict[str, Any]) -> None:
    no_trimmed_offsets(values)
    values["truncation"] = {
        "direction": "Right",
        "max_length": 8,
        "strategy": "LongestFirst",
        "stride": 0,
    }


def no_trimmed_offsets(values: dict[str, Any]) -> None:
    values["pre_tokenizer"]["trim_offsets"] = False


def not_special(values: dict[str, Any]) -> None:
    values["added_tokens"][2]["special"] = False


@pytest.mark.parametrize("change", [no_post_processor, truncate, no_trimmed_offsets, not_special])
def test_what_does_not_matter_for_ids(
    folders: tuple[Path, Path], change: Callable[[dict[str, Any]], object]
) -> None:
    edit(folders[1], change)
    require_same_tokens(*folders)
