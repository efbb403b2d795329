"""The grid: measured on a tiny engine, fitted, reported, compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from deployments.bench.characterize import Grid, Point, measure, points_of
from deployments.bench.characterize_report import as_document, best_lengths, write_report
from deployments.bench.compare import compare
from deployments.bench.paper_model import PaperModel
from deployments.bench.work import Work
from engine.config import DrafterConfig
from engine.errors import ConfigError
from tests.engine.harness import tiny_engine
from tests.tiny import save_tiny_llama

BETA_S, DRAFT_S, C, GAMMA = 0.02, 0.001, 0.6, 0.5
LENGTHS = (0, 1, 2, 4, 8)


def alpha(batch_size: int) -> float:
    return 0.0005 * batch_size


def points(slower: float = 1.0, repeats: int = 2) -> list[Point]:
    """Of a machine that is just as the paper's model says."""
    rounds = 10_000
    found = []
    for repeat in range(repeats):
        for size in (1, 4, 16, 64):
            for s in LENGTHS:
                kept = round(rounds * size * C * s**GAMMA) if s else 0
                target = slower * (alpha(size) * s + BETA_S)
                drafting = slower * DRAFT_S * s
                found.append(
                    Point(
                        repeat,
                        size,
                        s,
                        rounds,
                        rounds * (target + drafting),
                        rounds * drafting,
                        rounds * size + kept,
                        rounds * size,
                        kept,
                    )
                )
    return found


def plan(**changes: Any) -> dict[str, Any]:
    machine = {
        "cpu": "A",
        "cores": 2,
        "gpu": None,
        "cpu_capability": "AVX2",
        "memory_bytes": 2**30,
        "torch_threads": 1,
        "python": "3.11",
        "versions": {"ray": "1"},
        "commit": "abc",
    }
    return {
        "benchmark": "characterize",
        "model": "m",
        "dtype": "float32",
        "drafter": "ngram",
        "new_tokens": 8,
        "repeats": 2,
        **changes,
        "environment": machine,
    }


def test_the_papers_model_is_found_again_in_what_it_made() -> None:
    model = PaperModel(points())
    assert model.cost is not None
    assert model.cost.beta == pytest.approx(BETA_S)
    assert model.cost.alpha[16] == pytest.approx(alpha(16))
    assert model.cost.draft_seconds[4] == pytest.approx(DRAFT_S)
    assert (model.c, model.gamma) == pytest.approx((C, GAMMA), rel=1e-3)
    best = {size: model.best(size).draft_len for size in model.batch_sizes}
    assert best[1] > best[4] > best[64] == 0
    for size, length in best.items():
        # The best of those measured lies next to the equation's, which may be between two.
        near = [s for s in LENGTHS if abs(LENGTHS.index(s) - LENGTHS.index(length)) <= 1]
        assert min(near) <= model.by_equation(size) <= max(near)
    assert model.best(64).gain == pytest.approx(1.0)
    assert model.best(1).gain > 1.5


def test_a_batch_size_without_length_0_is_left_out() -> None:
    some = [p for p in points() if (p.batch_size, p.draft_len) != (4, 0)]
    assert PaperModel(some).batch_sizes == [1, 16, 64]
    assert PaperModel([p for p in points() if p.draft_len]).cost is None


def test_the_report_has_a_static_table_in_it(tmp_path: Path) -> None:
    assert write_report(tmp_path, plan(), points(), True)
    document = json.loads((tmp_path / "characterize.json").read_text())
    assert best_lengths(document)[64] == 0
    assert document["environment"]["commit"] == "abc"
    for name in ("characterize-heat-map.png", "characterize-curves.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert name in (tmp_path / "characterize.md").read_text()
    assert not write_report(tmp_path, plan(), [], False)


def test_two_grids_are_compared() -> None:
    documents = [
        as_document(plan(), some, PaperModel(some), is_complete=True)
        for some in (points(), points(slower=1.25))
    ]
    assert "| 1.25 (1.25 to 1.25) | 1.25 |" in compare(*documents, across_machines=False)
    with pytest.raises(ConfigError, match="B was stopped before its end"):
        compare(documents[0], {**documents[1], "is_complete": False}, across_machines=False)
    documents[1]["plan"]["new_tokens"] = 9
    with pytest.raises(ConfigError, match="new_tokens was 8 and is now 9"):
        compare(*documents, across_machines=False)


def test_a_grid_is_measured_once_and_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_tiny_llama(folder)
    engine = tiny_engine(folder, draft_len=2, drafter=DrafterConfig(kind="ngram", min_ngram=1))
    grid = Grid((1, 2), (0, 2), repeats=2)
    prompts = [[1, 2, 3, 1, 2], [4, 5, 6]]
    told: list[str] = []

    def go(stop_after: int) -> bool:
        work = Work(tmp_path / "run", {"benchmark": "characterize"})
        begun = len(told)
        return measure(
            engine,
            prompts,
            grid,
            8,
            work,
            lambda _, what: told.append(what),
            lambda: len(told) - begun > stop_after,
        )

    assert not go(3)
    kept = points_of(grid, Work(tmp_path / "run", {"benchmark": "characterize"}))
    assert [(p.repeat, p.batch_size, p.draft_len) for p in kept] == grid.cells[:3]
    assert go(100)
    assert told[4:] == ["warming up", "batch 2, length 2", *told[-4:]]
    found = points_of(grid, Work(tmp_path / "run", {"benchmark": "characterize"}))
    assert found[:3] == kept
    assert [(p.repeat, p.batch_size, p.draft_len) for p in found] == grid.cells
    assert all(p.emitted == p.rounds + p.accepted for p in found)
    assert all(p.accepted == 0 for p in found if not p.draft_len)
    assert go(0)  # nothing is left
