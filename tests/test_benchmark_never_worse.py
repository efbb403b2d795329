"""The adaptive policy against fixed lengths, and the policy actor's load: what is not measured."""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.actor_limit import limit, measure, simulated_windows
from benchmarks.adaptation import REPLICA, REPORT_S
from benchmarks.arms import Arms, Load
from benchmarks.cells import Cell, Overall, Round
from benchmarks.fleet import Reports, made_up_calibration, share_in_time
from benchmarks.heat_map import plot_cells
from benchmarks.never_worse import _lengths
from benchmarks.peers.workloads import Workload
from benchmarks.policy_actor import Broadcast, limit_of, percentile
from benchmarks.visits import FURTHER_PROMPTS, ROUNDS, Visit
from deployments.bench.results import Spread
from deployments.simulate.costs import profile_of
from engine.core import EngineStatus
from engine.request import FinishReason, Request, TokenDelta
from policy.board import Introduction, PolicyBoard
from policy.choice import parse_choice
from policy.learner import Learner
from policy.stats import StatsWindow
from policy.table import SpeculationTable

LOAD = Load([[1, 2], [3, 4]], 1)
ONE = Load([[1, 2]], 1)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeEngine:
    """Requests end after one token for each step; a step takes a second. Counts its steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: dict[str, int] = {}
        self._stats = StatsWindow()
        self._drafter = object()
        self.table = SpeculationTable(0, ())
        self.versions: list[int] = []
        self.decoded: list[tuple[int, ...]] = []
        self.tables: list[SpeculationTable] = []

    def set_table(self, table: SpeculationTable) -> None:
        self.table = table
        self.versions.append(table.version)
        self.tables.append(table)

    def add(self, *requests: Request) -> None:
        for request in requests:
            self._left[request.request_id] = request.sampling.max_tokens
            self.decoded.append(request.prompt_token_ids)

    @property
    def has_work(self) -> bool:
        return bool(self._left)

    def step(self) -> list[TokenDelta]:
        self._clock.now += 1.0
        self._stats.steps += 1
        done = [name for name, left in self._left.items() if left == 1]
        deltas = [
            TokenDelta(name, (7,), FinishReason.LENGTH if name in done else None)
            for name in self._left
        ]
        self._left = {name: left - 1 for name, left in self._left.items() if left > 1}
        return deltas

    def abort(self, request_id: str) -> bool:
        return self._left.pop(request_id, None) is not None

    def drain_stats(self) -> StatsWindow:
        window, self._stats = self._stats, StatsWindow(table_version=self.table.version)
        return window

    def status(self) -> EngineStatus:
        return EngineStatus(
            num_running=len(self._left),
            num_waiting=0,
            num_decoding=len(self._left),
            num_blocks=1,
            num_free_blocks=1,
            table_version=self.table.version,
            draft_len=self.table.draft_len(len(self._left)) if self._left else 0,
            steps=0,
        )


class WatchedBoard(PolicyBoard):
    """Keeps what it is shown, and takes a while over it."""

    def __init__(self, clock: Clock, seconds: float = 0.0) -> None:
        super().__init__(parse_choice("adaptive"), 8, clock)
        self._clock = clock
        self._seconds = seconds
        self.shown: list[StatsWindow] = []
        self.next_length: int | None = None
        said = Introduction("kind", "kind", 32, 8, calibration=made_up_calibration())
        self.introduce(REPLICA, said)

    def observe(self, replica_id: str, window: StatsWindow) -> bool:
        self.shown.append(window)
        self._clock.now += self._seconds
        if self.next_length is not None:
            self.set_by_hand(parse_choice({"fixed": self.next_length}))
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(clock: Clock) -> FakeEngine:
    return FakeEngine(clock)


def _arms(engine: FakeEngine, board: PolicyBoard, clock: Clock, new_tokens: int = 3) -> Arms:
    return Arms(engine, board, new_tokens, clock)  # type: ignore[arg-type]


def test_the_board_sees_the_adaptive_turns_alone(engine: FakeEngine, clock: Clock) -> None:
    board = WatchedBoard(clock)
    arms = _arms(engine, board, clock)
    arms.fixed(LOAD, 4)
    assert board.shown == []
    turn = arms.adaptive(LOAD)
    assert sum(window.steps for window in board.shown) == 6
    assert turn.window.steps == 6


def test_reports_come_every_two_seconds_of_adaptive_turns_over_several_of_them(
    engine: FakeEngine, clock: Clock
) -> None:
    board = WatchedBoard(clock)
    arms = _arms(engine, board, clock, new_tokens=1)
    arms.adaptive(ONE)
    arms.fixed(ONE, 0)
    clock.now += 10 * REPORT_S
    assert board.shown == []
    arms.adaptive(ONE)
    assert [window.steps for window in board.shown] == [2]


def test_what_the_board_takes_is_not_the_turns_time(engine: FakeEngine, clock: Clock) -> None:
    arms = _arms(engine, WatchedBoard(clock, seconds=0.5), clock)
    assert arms.adaptive(LOAD).tokens_per_second == 1.0
    assert arms.board_seconds == [0.5, 0.5, 0.5]


def test_a_new_table_is_in_force_within_the_turn_and_in_the_next(
    engine: FakeEngine, clock: Clock
) -> None:
    board = WatchedBoard(clock)
    board.next_length = 7
    arms = _arms(engine, board, clock)
    turn = arms.adaptive(LOAD)
    assert 0 < turn.rounds_by_length[7] < sum(turn.rounds_by_length.values())
    arms.fixed(LOAD, 1)
    board.next_length = None
    assert [*arms.adaptive(LOAD).rounds_by_length] == [7]


def test_versions_rise_over_all_arms_and_a_fixed_length_has_no_budget(
    engine: FakeEngine, clock: Clock
) -> None:
    arms = _arms(engine, WatchedBoard(clock), clock)
    arms.fixed(LOAD, 3)
    arms.adaptive(LOAD)
    arms.fixed(LOAD, 0)
    assert engine.versions == sorted(set(engine.versions))
    fixed, adaptive, off = engine.tables
    assert (fixed.draft_len(32), fixed.budget) == (3, None)
    assert (off.draft_len(1), off.budget) == (0, None)
    assert adaptive.budget is not None


def test_it_adapts_until_the_board_had_its_reports(engine: FakeEngine, clock: Clock) -> None:
    board = WatchedBoard(clock)
    arms = _arms(engine, board, clock, new_tokens=1)
    turns = []

    def loads() -> Iterator[Load]:
        while True:
            turns.append(1)
            yield ONE

    arms.adapt(loads(), 2)
    assert (len(board.shown), len(turns)) == (2, 4)


def test_all_arms_of_a_round_get_the_same_prompts_and_adapting_gets_others(
    engine: FakeEngine, clock: Clock
) -> None:
    cell = Cell("chat", 2)
    work = Workload("chat", tuple((i, i) for i in range(40)))
    visit = Visit(_arms(engine, WatchedBoard(clock), clock), cell, work, (0, 2), 0)
    visit.measure(lambda _what: None, lambda: True)
    assert [sorted(one.fixed) for one in cell.rounds] == [[0, 2]] * ROUNDS
    size = ROUNDS * (2 + FURTHER_PROMPTS[2])
    counted = Counter(prompt for prompt in engine.decoded if prompt[0] < size)
    # Warm-up, two lengths, length 0 again, adaptive.
    assert counted == {(i, i): 5 for i in range(size)}
    assert any(prompt[0] >= size for prompt in engine.decoded)


def test_as_many_requests_run_all_the_time(engine: FakeEngine, clock: Clock) -> None:
    """The first are of unlike lengths, and the turn ends when nobody takes an empty place."""
    at_once = []
    step = engine.step

    def watched() -> list[TokenDelta]:
        at_once.append(engine.status().num_running)
        return step()

    engine.step = watched  # type: ignore[method-assign]
    arms = _arms(engine, WatchedBoard(clock), clock, new_tokens=8)
    rate = arms.fixed(Load([[n, n] for n in range(9)], 4), 0)
    assert set(at_once) == {4}
    # Of 2, 4, 6 and 8 tokens; five more of 8 begin at 2, 4, 6, 8 and 10; the first of them ends at
    # 10 and is followed, the next at 12 and is not.
    assert len(at_once) == 12
    assert rate == 4.0
    assert not engine.has_work, "the rest is given up"


def test_no_round_begins_when_the_time_is_up(engine: FakeEngine, clock: Clock) -> None:
    cell = Cell("chat", 1)
    work = Workload("chat", ((1, 1), (2, 2)))
    visit = Visit(_arms(engine, WatchedBoard(clock), clock), cell, work, (0, 2), 0)
    visit.measure(lambda _what: None, lambda: False)
    assert (cell.rounds, engine.decoded) == ([], [])


def _cell(concurrency: int, *rounds: tuple[dict[int, float], float, float]) -> Cell:
    return Cell("chat", concurrency, [Round(*one) for one in rounds])


def test_the_best_fixed_length_goes_by_its_median_and_ratios_by_their_rounds() -> None:
    cell = _cell(
        1,
        ({0: 10.0, 2: 20.0, 4: 90.0}, 10.0, 21.0),
        ({0: 20.0, 2: 40.0, 4: 10.0}, 20.0, 38.0),
        ({0: 10.0, 2: 20.0, 4: 10.0}, 10.0, 20.0),
    )
    assert cell.best_fixed == 2
    assert cell.over(2) == Spread(1.0, 0.95, 1.05)
    assert cell.over(0) == Spread(2.0, 1.9, 2.1)


def test_both_turns_of_length_0_count_by_the_time_that_they_took() -> None:
    # 60 tokens in 6 s and in 2 s are 120 in 8 s.
    assert Round({0: 10.0}, 30.0, 1.0).rate(0) == pytest.approx(15.0)


@pytest.mark.parametrize(
    ("off_again", "adaptive", "verdict"),
    [
        (100.0, 98.5, "holds"),
        (100.0, 95.0, "falls short"),
        (106.0, 98.0, "within noise"),
        (94.0, 90.0, "within noise"),
    ],
)
def test_a_miss_is_judged_by_how_far_length_0_differs_from_itself(
    off_again: float, adaptive: float, verdict: str
) -> None:
    cell = _cell(1, ({0: 100.0, 2: 50.0}, off_again, adaptive))
    assert cell.verdict == verdict


def test_overall_takes_the_worst_cells_and_geometric_means() -> None:
    small = _cell(1, ({0: 10.0, 2: 40.0, 4: 20.0}, 10.0, 40.0))
    large = _cell(32, ({0: 100.0, 2: 50.0, 4: 10.0}, 100.0, 96.0))
    overall = Overall.of([small, large])
    assert overall.min_ratio_to_best_fixed == pytest.approx(0.96)
    assert overall.min_ratio_to_off == pytest.approx(0.96)
    assert overall.mean_gain_over_off == pytest.approx((4 * 0.96) ** 0.5)
    assert overall.best_single_fixed == 2
    assert overall.mean_gain_over_best_single_fixed == pytest.approx((1.0 * 1.92) ** 0.5)
    assert [goal.holds for goal in overall.goals()] == [False, False]


def test_the_heat_map_is_a_png_even_where_a_cell_was_not_measured(tmp_path: Path) -> None:
    cells = [_cell(1, ({0: 10.0}, 10.0, 12.0)), _cell(2, ({0: 10.0}, 10.0, 9.0))]
    cells[1].workload = "code"
    path = tmp_path / "map.png"
    plot_cells(path, cells)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("text", ["1,2", "-1,0", "0,x", ""])
def test_lengths_that_lack_0_or_are_none_are_refused_by_value(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=repr(text)):
        _lengths(text)


def test_reports_without_an_answer_are_late_but_not_before_their_time() -> None:
    reports = Reports(begun={1: 0.0, 2: 9.0}, answered_s=[0.1, 1.9, 2.1], failed=1)
    assert reports.in_time(now=10.0) == pytest.approx(2 / 5)


def test_without_reports_there_is_no_share() -> None:
    with pytest.raises(ValueError, match="no reports"):
        share_in_time([], 0)


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(i) for i in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]


def test_the_limit_is_below_the_first_number_that_is_late() -> None:
    def broadcast(replicas: int, seconds: float) -> Broadcast:
        return Broadcast(replicas, Spread(seconds, seconds, seconds))

    by_chance = [broadcast(10, 0.01), broadcast(1000, 0.05), broadcast(100, 0.2)]
    assert limit_of(by_chance) == (10, 100)
    assert limit_of(by_chance[:2]) == (1000, None)
    assert limit_of([broadcast(10, 0.2)]) == (None, 10)


def test_simulated_replicas_give_a_policy_something_to_decide() -> None:
    profile = profile_of("a100-7b", max_num_seqs=32)
    windows = simulated_windows(profile, seconds=2.5)
    assert len(windows) > 10
    learner = Learner(max_batch=32, max_draft_len=8)
    learner.calibrate(profile.calibration)
    window = windows[0]
    assert len(window.shapes) > 1
    assert 0 < window.accepted_tokens < window.drafted_tokens
    learner.observe(window, 1)
    decided = learner.decide(SpeculationTable(1, ()))
    assert decided is not None
    assert decided.rungs


def test_the_actors_work_rises_with_the_replicas_and_its_limit_lies_between() -> None:
    profile = profile_of("a100-7b", max_num_seqs=32)
    windows = simulated_windows(profile, seconds=2.5)
    told = measure(10, profile, windows, seconds=0.05)
    assert told["reports"] > 0
    assert told["bytes_per_s"] == pytest.approx(5 * told["bytes_per_report"])
    sizes = [{"replicas": n, "share_of_a_core": s} for n, s in ((10, 0.1), (100, 0.6), (300, 1.6))]
    assert limit(sizes) == pytest.approx(180)
    assert limit(sizes[:2]) is None
    assert limit(sizes[2:]) == 300
