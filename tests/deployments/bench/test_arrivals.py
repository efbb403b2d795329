"""Arrivals: what is drawn, and that it can be drawn and replayed again."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from deployments.bench.arrivals import (
    Arrival,
    Setting,
    gamma_setting,
    gamma_times,
    phased_setting,
    read_arrivals,
    write_arrivals,
)
from deployments.bench.azure import Slice, read_trace
from engine.errors import ConfigError

SLICE = Slice(start_s=0.0, slowdown=10.0, seconds=30.0, segments=2, max_tokens=1000)
TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:48.6805910,900,101
2023-11-16 18:15:48.6805920,900,100
2023-11-16 18:15:50.1805900,91,16
2023-11-16 18:17:50.1805900,91,16
"""


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_intervals_have_the_mean_and_the_cv_that_were_asked_for(cv: float) -> None:
    times = gamma_times(np.random.default_rng(1), 0.2, cv, 20_000.0)
    intervals = np.diff([0.0, *times])
    assert len(intervals) == 100_000
    assert np.mean(intervals) == pytest.approx(0.2)
    assert np.std(intervals) / np.mean(intervals) == pytest.approx(cv, rel=0.03, abs=1e-6)


@pytest.mark.parametrize("cv", [1e-200, 10.0, 100.0])
def test_few_intervals_of_any_cv_end_where_they_are_to(cv: float) -> None:
    for seed in range(50):
        times = gamma_times(np.random.default_rng(seed), 1.0, cv, 2.0)
        assert len(times) == 2
        assert 0 <= times[0] <= times[1] == pytest.approx(2.0)


def drawn(seed: int, interval_s: float = 0.5, cv: float = 1.0) -> Setting:
    return gamma_setting(interval_s, cv, seconds=20.0, segments=3, new_tokens=8, seed=seed)


def test_the_same_seed_draws_the_same_and_segments_differ() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1).digest != drawn(2).digest
    assert len({part[0].at_s for part in drawn(1).segments}) == 3
    asked = [one.prompt for part in drawn(1).segments for one in part]
    assert asked == list(range(len(asked)))
    assert [len(part) for part in drawn(1).segments] == [40, 40, 40]
    assert all(0 < one.at_s <= 20.0 + 1e-9 for part in drawn(1).segments for one in part)


def test_no_segment_is_empty() -> None:
    assert [[one.at_s for one in part] for part in drawn(1, interval_s=1e6).segments] == [
        [20.0]
    ] * 3


def test_phases_alternate() -> None:
    setting = phased_setting((0.05, 2.0), 1.0, phase_s=20.0, cycles=2, new_tokens=8, seed=0)
    (times,) = [[one.at_s for one in part] for part in setting.segments]
    counts = [sum(20.0 * i < t <= 20.0 * (i + 1) + 1e-9 for t in times) for i in range(4)]
    assert counts == [400, 10, 400, 10]
    assert all(a <= b for a, b in pairwise(times))
    assert setting.phases == ((20.0, 0.05), (20.0, 2.0)) * 2


def test_written_arrivals_are_the_same_traffic_when_they_are_read(tmp_path: Path) -> None:
    setting = drawn(7)
    write_arrivals(tmp_path / "kept.csv", setting)
    again = read_arrivals(tmp_path / "kept.csv")
    assert again.name == "kept"
    assert again.digest == setting.digest
    write_arrivals(tmp_path / "twice.csv", again)
    assert read_arrivals(tmp_path / "twice.csv").segments == again.segments


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("segment,at_s,prompt,prompt_tokens,new_tokens\n", "holds no arrivals"),
        ("at_s\n0\n", "line 2"),
        ("segment,at_s,prompt,prompt_tokens,new_tokens\n0,1,0,,4\n0,nan,0,,4\n", "line 3"),
        ("segment,at_s,prompt,prompt_tokens,new_tokens\n0,1,0,,0\n", "at least 1"),
    ],
)
def test_a_bad_file_of_arrivals_is_refused_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_arrivals(path)


def test_a_trace_keeps_its_lengths_and_stretches_its_times(tmp_path: Path) -> None:
    path = tmp_path / "chats.csv"
    path.write_text(TRACE)
    setting, left_out = read_trace(path, SLICE)
    assert left_out == 1  # 900 + 101 tokens
    first, second = setting.segments
    assert [one.at_s for one in (*first, *second)] == pytest.approx([0.0, 20.00002, 5.0])
    assert [replace(one, at_s=0.0) for one in first] == [
        Arrival(0.0, 0, 44, 374),
        Arrival(0.0, 1, 100, 900),
    ]
    assert replace(second[0], at_s=0.0) == Arrival(0.0, 2, 16, 91)
    assert setting.name == "chats, time x 10"


def test_a_traces_lines_may_come_in_any_order(tmp_path: Path) -> None:
    head, *lines = TRACE.splitlines(keepends=True)
    for name, order in (("a", lines), ("b", lines[::-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chats.csv").write_text("".join([head, *order]))
    first, other = (read_trace(tmp_path / name / "chats.csv", SLICE) for name in ("a", "b"))
    assert first == other


def test_a_trace_slowed_down_beyond_all_numbers_has_its_first_request(tmp_path: Path) -> None:
    path = tmp_path / "chats.csv"
    path.write_text(TRACE)
    setting, _ = read_trace(path, replace(SLICE, slowdown=1e308))
    assert [[one.at_s for one in part] for part in setting.segments] == [[0.0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACE.replace("374", "many"), "line 2"),
        (TRACE.replace("TIMESTAMP", "WHEN"), "TIMESTAMP"),
        (TRACE.replace("900,100\n", "900,0\n"), "line 4: numbers of tokens must be at least 1"),
        (TRACE.replace("2023", "2023-"), "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request"),
    ],
)
def test_a_bad_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_trace(path, SLICE)
