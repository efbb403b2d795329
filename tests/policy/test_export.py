"""Schedules in other engines' words, read back by the rules that those engines apply."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from policy.export import export
from policy.table import UNBOUNDED_BATCH_SIZE, SpeculationTable

SCHEDULES: list[tuple[tuple[int, int], ...]] = [
    ((1, 5), (8, 2)),
    ((2, 4), (4, 4), (8, 2), (16, 1)),
    ((2, 4), (8, 0), (16, 0)),
    ((UNBOUNDED_BATCH_SIZE, 3),),
    ((1, 4), (64, 2)),
    (),
]
MAX_BATCH = 32


def by_vllm(text: str, max_num_seqs: int) -> list[int]:
    """Length at each batch size; ranges must start at 1, rise and leave the last one's length."""
    content = json.loads(text)
    assert content["num_speculative_tokens"] >= 1
    lengths: list[int] = []
    for first, last, length in content["num_speculative_tokens_per_batch_size"]:
        assert first == len(lengths) + 1
        assert first <= last
        assert 0 <= length <= content["num_speculative_tokens"]
        lengths += [length] * (last - first + 1)
    return (lengths + lengths[-1:] * max_num_seqs)[:max_num_seqs]


def by_sglang(text: str, max_num_seqs: int) -> list[int]:
    """The largest key that is not above the batch size counts."""
    slots: dict[str, Any] = json.loads(text)
    found = []
    for batch_size in range(1, max_num_seqs + 1):
        key = max(int(key) for key in slots if int(key) <= batch_size)
        (candidate,) = slots[str(key)]["candidate_steps"]
        found.append(candidate)
    return found


def by_tensorrt_llm(text: str, max_num_seqs: int) -> list[int]:
    """The smallest key that is not below the batch size counts; 0 above them all."""
    config = yaml.safe_load(text)["speculative_config"]
    schedule: dict[int, int] = config["draft_len_schedule"]
    assert schedule[min(schedule)] == config["max_draft_len"] == max(schedule.values())
    return [
        next((schedule[key] for key in sorted(schedule) if batch_size <= key), 0)
        for batch_size in range(1, max_num_seqs + 1)
    ]


READERS: dict[str, Callable[[str, int], list[int]]] = {
    "vllm": by_vllm,
    "sglang": by_sglang,
    "tensorrt-llm": by_tensorrt_llm,
}


@pytest.mark.parametrize("rungs", SCHEDULES)
@pytest.mark.parametrize("format", READERS)
def test_each_engine_reads_the_schedule_as_it_was(
    format: str, rungs: tuple[tuple[int, int], ...]
) -> None:
    table = SpeculationTable(1, rungs)
    wanted = [table.draft_len(batch_size) for batch_size in range(1, MAX_BATCH + 1)]
    assert READERS[format](export(rungs, MAX_BATCH, format).text, MAX_BATCH) == wanted


def test_neighbours_of_one_length_are_one_range() -> None:
    text = export([(2, 4), (4, 4), (8, 0)], MAX_BATCH, "vllm").text
    assert json.loads(text)["num_speculative_tokens_per_batch_size"] == [[1, 4, 4], [5, 32, 0]]


@pytest.mark.parametrize("format", READERS)
def test_past_the_end_an_engine_goes_on_without_drafts(format: str) -> None:
    text = export([(2, 4)], 8, format).text
    assert READERS[format](text, 20) == [4, 4, *[0] * 18]


def test_a_rising_schedule_is_cut_for_tensorrt_llm_which_says_so() -> None:
    exported = export([(1, 2), (8, 4), (16, 1)], MAX_BATCH, "tensorrt-llm")
    assert by_tensorrt_llm(exported.text, 17) == [2] * 8 + [1] * 8 + [0]
    told = next(note for note in exported.notes if "cut" in note)
    assert "above that at batch size 1 (2): cut were 4 at 2 to 8" in told
    assert f"# {told}" in exported.text
    falling = export([(1, 4), (8, 2)], MAX_BATCH, "tensorrt-llm")
    assert not any("cut" in note for note in falling.notes)


def test_what_must_be_added_is_told() -> None:
    told = {format: " ".join(export([(8, 3)], 32, format).notes) for format in READERS}
    assert "--speculative-config" in told["vllm"]
    assert "--speculative-num-steps 3 --speculative-num-draft-tokens 4" in told["sglang"]
    assert "refuses 0" in told["sglang"]
    assert "refuses 0" not in " ".join(export([(32, 3)], 32, "sglang").notes)
    assert "decoding_type" in told["tensorrt-llm"]
    for format in READERS:
        assert "drafts nothing" in export([], 32, format).notes[-1]
        assert "drafts nothing" not in told[format]


@pytest.mark.parametrize(
    ("rungs", "max_batch", "format", "says"),
    [
        ([(1, 2)], 8, "triton", "format must be one of vllm, sglang, tensorrt-llm, got 'triton'"),
        ([(1, 2)], 0, "vllm", "max_batch must be at least 1, got 0"),
        ([(4, 2), (1, 2)], 8, "vllm", "strictly rising, got 1 after 4"),
        ([(4, 99)], 8, "vllm", "batch size 4 must be between 0 and 16, got 99"),
    ],
)
def test_bad_arguments_are_named(
    rungs: list[tuple[int, int]], max_batch: int, format: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        export(rungs, max_batch, format)
