"""What a distillation reads and keeps: prompts, texts, samples, and the places they come to."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.distill.batches import batches, most_said
from engine.distill.samples import NUM_TOP, Sample, SampleStore
from engine.distill.shares import Share
from engine.distill.sources import Chat, Opening, prompt_ids, read_prompts, read_text
from engine.errors import ConfigError
from tests.tiny_tokenizer import byte_level_tokenizer


def sample(source: int, num_tokens: int, start: int) -> Sample:
    """Of which the target's likeliest token at place i is i, its second i + 1, and so on."""
    places = np.arange(start, num_tokens)[:, None]
    return Sample(
        source,
        np.arange(num_tokens, dtype=np.int32),
        start,
        (places + np.arange(NUM_TOP)).astype(np.int32),
        np.log(np.full((num_tokens - start, NUM_TOP), 1 / NUM_TOP)).astype(np.float16),
    )


def test_prompts_are_chats_and_openings(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    text = '{"turns": ["Hello.", "And?"], "category": "talk"}\n\n{"prompt": "def f("}\n'
    path.write_text(text)
    packed = tmp_path / "prompts.jsonl.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    expected = [Chat(("Hello.", "And?")), Opening("def f(")]
    assert read_prompts(path) == read_prompts(packed) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file holds no prompts"),
        ("\n\n", "the file holds no prompts"),
        ("{", "line 1: not JSON"),
        ('{"turns": ["a"]}\n[1]', 'line 2: must be an object with "turns" or "prompt"'),
        ('{"turns": []}', 'line 1: "turns" must be a list of texts that are not empty'),
        ('{"turns": ["a", ""]}', 'line 1: "turns" must be a list of texts that are not empty'),
        ('{"turns": "a"}', 'line 1: "turns" must be a list of texts that are not empty'),
        ('{"prompt": ""}', 'line 1: "prompt" must be a text that is not empty'),
        ('{"prompt": 1}', 'line 1: "prompt" must be a text that is not empty'),
    ],
)
def test_a_bad_prompt_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_prompts(path)
    assert str(refused.value).startswith(f"--prompts {path}")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--prompts .*none.jsonl: can't be read: No such file"):
        read_prompts(tmp_path / "none.jsonl")
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match="is no text in UTF-8"):
        read_prompts(path)
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(ConfigError, match="can't be read"):
        read_prompts(broken)
    path.write_text("")
    with pytest.raises(ConfigError, match=r"--text .*bytes: the file holds no text"):
        read_text(path, byte_level_tokenizer(), 16)


def test_later_turns_see_the_answers() -> None:
    tokenizer = byte_level_tokenizer()
    first = prompt_ids(("One?", "Two?"), (), tokenizer)
    second = prompt_ids(("One?", "Two?"), ("Yes.",), tokenizer)
    assert tokenizer.decode(first) == "<|bos|><|user|>One?<|end|><|assistant|>"
    assert tokenizer.decode(second) == (
        "<|bos|><|user|>One?<|end|><|assistant|>Yes.<|end|><|user|>Two?<|end|><|assistant|>"
    )


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    store = SampleStore(tmp_path / "samples")
    store.append([sample(3, 20, 5), sample(4, 9, 1)])
    store.append([])
    store.append([sample(5, 7, 6)])
    found = list(SampleStore(tmp_path / "samples"))
    assert [(one.source, len(one.tokens), one.start) for one in found] == [
        (3, 20, 5),
        (4, 9, 1),
        (5, 7, 6),
    ]
    for one, other in zip(found, (sample(3, 20, 5), sample(4, 9, 1), sample(5, 7, 6)), strict=True):
        assert np.array_equal(one.tokens, other.tokens)
        assert np.array_equal(one.top_ids, other.top_ids)
        assert np.array_equal(one.top_logprobs, other.top_logprobs)


def test_a_damaged_file_of_samples_is_named(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    store.append([sample(3, 20, 5)])
    (file,) = tmp_path.glob("*.npz")
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ConfigError, match=r"samples-00000\.npz can't be read .*; remove it"):
        list(store)


def test_batches_say_of_each_place_what_the_target_holds() -> None:
    samples = [sample(0, 12, 4), sample(1, 9, 7), sample(2, 30, 10), sample(3, 6, 2)]
    index_of = torch.full((64,), -1)
    index_of[:40] = torch.arange(40)
    seen: list[int] = []
    for batch in batches(samples, index_of, max_tokens=48, max_len=25, seed=3):
        n, length = batch.token_ids.shape
        assert n * length <= 48
        # A place is told by the tokens before it: here each text is 0, 1, 2, ...
        position = batch.token_ids[:, batch.first :].flatten()[batch.places]
        assert torch.equal(batch.label_ids[:, 0], position + 1)
        assert torch.allclose(batch.label_probs.sum(dim=-1), torch.ones(len(position)))
        assert torch.all(batch.label_probs[batch.label_ids == 0] == 0)  # 40 and more: not kept
        seen += (position + 1).tolist()
        assert batch.num_tokens == sum(min(25, len(samples[i].tokens)) for i in range(4)) or n < 4
    # Places from 25 on are cut off.
    assert sorted(seen) == sorted([*range(4, 12), *range(7, 9), *range(10, 25), *range(2, 6)])


def test_hard_labels_are_the_likeliest_token_alone() -> None:
    (batch,) = batches(
        [sample(0, 12, 4)], torch.arange(64), max_tokens=64, max_len=64, seed=None, hard=True
    )
    assert torch.equal(batch.label_probs[:, 0], torch.ones(8))
    assert torch.all(batch.label_probs[:, 1:] == 0)


def test_a_place_of_which_no_token_is_kept_teaches_nothing() -> None:
    index_of = torch.full((64,), -1)
    index_of[60:] = torch.arange(4)
    (batch,) = batches([sample(0, 12, 4)], index_of, max_tokens=64, max_len=64, seed=None)
    assert torch.all(batch.label_probs == 0)
    assert not batch.is_known.any()


def test_the_vocabulary_holds_what_is_said_most() -> None:
    samples = [sample(0, 12, 4), sample(1, 9, 7), sample(2, 9, 7)]
    token_ids, share = most_said(samples, 2)
    assert token_ids == [7, 8]
    assert share == pytest.approx(6 / 12)


def test_shares_tell_their_interval() -> None:
    assert str(Share(45, 100)) == "45.0 % (35.6 to 54.8, of 100)"
    assert Share(0, 0).interval == (0.0, 1.0)
    assert Share(10, 10).interval[1] == pytest.approx(1.0)
