"""A calibration of real engines, and what it leaves behind: nothing."""

from pathlib import Path

import pytest

from engine.calibrate.grid import Grid, default_grid
from engine.calibrate.measure import calibrate
from engine.calibrate.samples import Point
from engine.calibrate.survey import CalibrationStopped
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from policy.cost import Calibration
from tests.engine.quick import Witness, answers, deltas_of, quick_engine, request, steps
from tests.engine.tiny_models import EOS, DrafterName

CONTEXTS = (12, 30)


def run(engine: Engine, **more: object) -> Calibration:
    sizes = {"batch_sizes": (1, 2, 4), "draft_lens": (0, 1, 3), "contexts": CONTEXTS}
    grid = Grid(**{name: more.pop(name, value) for name, value in sizes.items()})  # type: ignore[arg-type]
    return calibrate(engine, grid, **more)  # type: ignore[arg-type]


def groups(calibration: Calibration) -> set[tuple[int, int]]:
    return {(cell.batch_size, cell.context) for cell in calibration.cells}


@pytest.mark.parametrize("drafter", ["ngram", "perturbed", "cascade", "trimmed", "shorter"])
def test_every_kind_of_drafter_is_measured(drafter: DrafterName) -> None:
    found = run(quick_engine(drafter))
    assert groups(found) == {(size, context) for size in (1, 2, 4) for context in CONTEXTS}
    for cell in found.cells:
        assert cell.target_seconds > 0
        assert (cell.draft_seconds > 0) == (cell.draft_len > 0)


def test_each_round_is_asked_of_target_and_draft_model_as_traffic_would() -> None:
    engine = quick_engine("cascade")
    witness = Witness(engine)
    proposals: list[list[int]] = []
    drafter = engine._drafter
    model = drafter.model  # type: ignore[attr-defined]
    propose = model.propose

    def watched(slices):  # type: ignore[no-untyped-def]
        drafts = propose(slices)
        proposals.append([len(draft.token_ids) for draft in drafts])
        return drafts

    model.propose = watched
    # Two batch sizes and no length behind the second: nothing can be left out.
    run(engine, batch_sizes=(2, 4), draft_lens=(0, 1, 2))
    asked = [
        Point(len(plan.slices), plan.draft_len, len(plan.slices[0].tokens))
        for plan, _ in witness.asked
    ]
    assert {Point(4, 1, 12), Point(4, 2, 30)} <= set(asked)
    assert [2, 2, 2, 2] in proposals
    assert not drafter._guesses  # type: ignore[attr-defined]  # the cascade itself is not asked
    for plan, drafts in witness.asked:
        held: list[int] = []
        for part, draft in zip(plan.slices, drafts, strict=True):
            assert part.samples
            assert (part.start, part.num_tokens) == (len(part.tokens) - 1, 1)
            assert part.draft_computed == part.start
            assert len(draft.token_ids) == plan.draft_len
            assert not EOS & {*part.tokens, *draft.token_ids}
            assert len(part.block_ids) * 4 >= part.end + len(draft.token_ids)
            held += part.block_ids
        assert len(set(held)) == len(held), "two sequences share a block though there are enough"


def test_every_block_is_written_before_anything_is_timed() -> None:
    engine = quick_engine("perturbed")
    witness = Witness(engine)
    run(engine)
    touched: set[int] = set()
    for plan, _ in witness.asked:
        if len(plan.slices[0].tokens) > 1:
            assert {block for part in plan.slices for block in part.block_ids} <= touched
        else:
            touched |= {block for part in plan.slices for block in part.block_ids}
    assert touched


@pytest.mark.parametrize("drafter", ["ngram", "perturbed", "cascade"])
def test_an_engine_answers_afterwards_as_if_nothing_had_been(drafter: DrafterName) -> None:
    requests = [request("short"), request("repeating"), request("long")]
    engine = quick_engine(drafter, 3, num_blocks=40)
    run(engine)
    engine.check_integrity()
    assert engine.status() == quick_engine(drafter, 3, num_blocks=40).status()
    assert engine.drain_stats().steps == 0
    told = steps(engine, *requests)
    texts = {
        one.request_id: [t for d in deltas_of(told, one.request_id) for t in d.token_ids]
        for one in requests
    }
    assert texts == answers(requests)


def test_what_the_prefix_cache_held_is_not_found_once_it_is_written_over() -> None:
    engine = quick_engine("perturbed", 3, num_blocks=30)  # no more than it writes over
    steps(engine, request("long"))
    assert engine.status().num_cached_blocks > 0
    run(engine)
    engine.check_integrity()
    again = request("long again")
    told = deltas_of(steps(engine, again), "long again")
    assert [token for delta in told for token in delta.token_ids] == answers([again])["long again"]
    assert engine.status().prefix_cache_hits == 0


def test_a_pool_too_small_for_all_sequences_is_shared() -> None:
    engine = quick_engine("perturbed", num_blocks=12)
    found = run(engine, batch_sizes=(1, 8))
    assert (8, 30) in groups(found)
    assert engine.status().num_free_blocks == 12
    engine.check_integrity()


def test_an_engine_with_requests_is_refused_and_goes_on() -> None:
    engine = quick_engine("ngram", 2)
    engine.add(request("short"))
    with pytest.raises(RuntimeError, match="1 requests are in flight"):
        run(engine)
    while engine.has_work:
        engine.step()
    run(engine)


def test_a_stop_gives_the_blocks_back() -> None:
    engine = quick_engine("ngram")
    reports: list[str] = []
    with pytest.raises(CalibrationStopped):
        run(
            engine,
            report=lambda done, total, what: reports.append(what),
            stopped=lambda: len(reports) >= 3,
        )
    assert engine.status().num_free_blocks == 256
    engine.check_integrity()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"contexts": (61,)}, "contexts must leave room for draft_lens and one token more within"),
        ({"batch_sizes": (2, 1)}, "batch_sizes must be different numbers from 1 up"),
        ({"batch_sizes": ()}, "batch_sizes must be"),
        ({"draft_lens": (0, 2)}, "draft_lens must hold 0 and 1, got (0, 2)"),
        ({"draft_lens": (1, 2)}, "draft_lens must hold 0 and 1"),
        ({"contexts": (0, 4)}, "contexts must be different numbers from 1 up"),
    ],
)
def test_a_bad_grid_is_refused(bad: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError) as refused:
        run(quick_engine("ngram"), **bad)
    assert says in str(refused.value)


def config(**sizes: int) -> EngineConfig:
    return EngineConfig(Path("model"), **sizes)  # type: ignore[arg-type]


def test_the_default_grid_covers_what_the_engine_can_do() -> None:
    assert default_grid(config(), 2048) == Grid(
        (1, 2, 4, 8, 16, 32), (0, 1, 2, 3, 4, 6, 8), (128, 1024)
    )
    assert default_grid(config(max_num_seqs=12, max_draft_len=5), 700) == Grid(
        (1, 2, 4, 8, 12), (0, 1, 2, 3, 4, 5), (128, 694)
    )
    assert default_grid(config(max_num_seqs=1, max_draft_len=16), 64) == Grid(
        (1,), (0, 1, 2, 3, 4, 6, 8, 12, 16), (47,)
    )
    assert default_grid(config(), 3) == Grid((1, 2, 4, 8, 16, 32), (0, 1), (1,))


def test_where_nothing_can_be_drafted_there_is_no_grid() -> None:
    for bad, limit in ((config(max_draft_len=0), 64), (config(), 2)):
        with pytest.raises(ConfigError, match="nothing can be drafted"):
            default_grid(bad, limit)
    none = EngineConfig(Path("model"), DrafterConfig(kind="none"))
    with pytest.raises(ConfigError, match=r"drafter\.kind is 'none'"):
        default_grid(none, 64)
