"""A run's folder: what is kept, what is gone on with, what is refused."""

from pathlib import Path

import pytest

from deployments.bench.work import Work, first_difference
from engine.errors import ConfigError

PLAN = {"benchmark": "traffic", "arms": ["off", "adaptive"], "environment": {"commit": "abc"}}


def test_what_was_measured_is_there_again(tmp_path: Path) -> None:
    work = Work(tmp_path / "run", PLAN)
    work.add("a", {"seconds": 1.5})
    work.add("b", {"seconds": 2.5})
    again = Work(tmp_path / "run", PLAN)
    assert "a" in again
    assert "c" not in again
    assert again.get(["b", "c", "a"]) == [{"seconds": 2.5}, {"seconds": 1.5}]


def test_a_line_that_was_cut_short_was_never_measured(tmp_path: Path) -> None:
    work = Work(tmp_path, PLAN)
    work.add("a", {"seconds": 1.5})
    work.add("b", {"seconds": 2.5})
    file = tmp_path / "traffic.measured.jsonl"
    file.write_text(file.read_text()[:-8])
    again = Work(tmp_path, PLAN)
    assert "b" not in again
    again.add("b", {"seconds": 3.5})
    assert Work(tmp_path, PLAN)["b"] == {"seconds": 3.5}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arms": ["off"]}, r'arms was \["off", "adaptive"\] and is now \["off"\]'),
        ({"environment": {"commit": "def"}}, 'environment.commit was "abc" and is now "def"'),
        ({"seed": 1}, "seed was null and is now 1"),
    ],
)
def test_another_plan_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    Work(tmp_path, PLAN).add("a", {})
    with pytest.raises(ConfigError, match=said):
        Work(tmp_path, {**PLAN, **change})


def test_equal_documents_do_not_differ() -> None:
    assert first_difference({"a": {"b": [1]}}, {"a": {"b": [1]}}) is None
