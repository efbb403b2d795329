"""What a survey measures, in what order and how often, against a machine made of formulas."""

from collections import Counter
from collections.abc import Callable

import pytest

from engine.calibrate.grid import Grid
from engine.calibrate.samples import LEAST_REPEATS, Point, Seconds
from engine.calibrate.survey import MOST_REPEATS, CalibrationStopped, Measure, Survey
from policy.cost import Calibration

GRID = Grid((1, 2, 4, 8), (0, 1, 2, 4, 8), (128, 512))


class Machine:
    """A clock, and steps that take time on it."""

    def __init__(self, cost: Callable[[Point], tuple[float, float]]) -> None:
        self.now = 0.0
        self.measured: list[Point] = []
        self._cost = cost

    def measure(self, point: Point) -> Seconds:
        seconds = Seconds(*self._cost(point))
        self.measured.append(point)
        self.now += sum(seconds)
        return seconds


def idle(point: Point) -> tuple[float, float]:
    """So much idle arithmetic that drafts cost next to nothing."""
    return 0.010 + 1e-6 * point.batch_size * (point.draft_len + 1), 1e-4 * point.draft_len


def busy(point: Point) -> tuple[float, float]:
    """Every token costs the same."""
    return 0.001 * point.batch_size * (point.draft_len + 1), 1e-4 * point.draft_len


def survey(
    machine: Machine,
    grid: Grid = GRID,
    *,
    max_seconds: float = 1e9,
    measure: Measure | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Calibration, list[tuple[int, int, str]]]:
    told: list[tuple[int, int, str]] = []
    found = Survey(
        grid,
        measure or machine.measure,
        max_seconds=max_seconds,
        report=lambda *report: told.append(report),
        stopped=stopped,
        clock=lambda: machine.now,
    ).run()
    return found, told


def lengths(calibration: Calibration, batch_size: int, context: int) -> list[int]:
    cells = calibration.cells
    return [c.draft_len for c in cells if (c.batch_size, c.context) == (batch_size, context)]


def test_where_drafts_are_cheap_all_lengths_are_measured_and_a_few_at_further_contexts() -> None:
    machine = Machine(idle)
    found, _ = survey(machine)
    for size in GRID.batch_sizes:
        assert lengths(found, size, 128) == [0, 1, 2, 4, 8]
        assert lengths(found, size, 512) == [0, 2, 8]
    times = Counter(machine.measured)
    # Steady steps settle at once: a warm-up and the fewest repeats.
    assert set(times.values()) == {1 + LEAST_REPEATS}
    for cell in found.cells:
        target, draft = idle(Point(cell.batch_size, cell.draft_len, cell.context))
        assert (cell.target_seconds, cell.draft_seconds) == (target, draft)


def test_what_cannot_win_is_left_out() -> None:
    machine = Machine(busy)
    found, _ = survey(machine)
    # Two lengths in a row lose even if all is kept; from the third batch size on one must do.
    assert lengths(found, 1, 128) == lengths(found, 2, 128) == [0, 1, 2]
    assert lengths(found, 4, 128) == lengths(found, 8, 128) == [0, 1]
    assert lengths(found, 1, 512) == [0, 2]
    assert lengths(found, 8, 512) == [0, 1]


def test_one_length_that_loses_ends_nothing() -> None:
    def jagged(point: Point) -> tuple[float, float]:
        return (0.1 if point.draft_len == 2 else 0.01), 0.0

    found, _ = survey(Machine(jagged))
    assert lengths(found, 1, 128) == [0, 1, 2, 4, 8]


def test_drafting_counts_when_a_length_is_judged() -> None:
    def slow_drafts(point: Point) -> tuple[float, float]:
        return 0.01, 0.02 * point.draft_len

    found, _ = survey(Machine(slow_drafts))
    assert lengths(found, 1, 128) == [0, 1, 2]


def test_a_batch_size_that_wins_between_two_that_do_not_keeps_the_larger_ones() -> None:
    def jagged(point: Point) -> tuple[float, float]:
        return idle(point) if point.batch_size == 2 else busy(point)

    found, _ = survey(Machine(jagged), Grid((1, 2, 4, 8, 16), (0, 1, 2), (128,)))
    assert lengths(found, 8, 128) == [0, 1, 2]
    assert lengths(found, 16, 128) == [0, 1]


def test_noise_is_measured_more_often_and_told_by_the_median() -> None:
    times: Counter[Point] = Counter()

    def noisy(point: Point) -> tuple[float, float]:
        times[point] += 1
        # One in three is far off, the others are further apart than what counts as settled.
        return 0.010 * (50.0 if times[point] % 3 == 0 else 1.0 + 0.05 * (times[point] % 2)), 0.0

    found, _ = survey(Machine(noisy), Grid((1,), (0, 1), (128,)))
    assert set(times.values()) == {1 + MOST_REPEATS}
    assert all(cell.target_seconds < 0.011 for cell in found.cells)


@pytest.mark.parametrize("spell", [(6, 40), (60, 75), (81, 100)])
def test_a_spell_in_which_something_else_had_the_machine_is_made_good(
    spell: tuple[int, int],
) -> None:
    machine = Machine(idle)

    def measure(point: Point) -> Seconds:
        seconds = machine.measure(point)
        within = spell[0] <= len(machine.measured) < spell[1]
        return Seconds(100 * seconds.target, seconds.draft) if within else seconds

    found, _ = survey(machine, measure=measure)
    for cell in found.cells:
        undisturbed = idle(Point(cell.batch_size, cell.draft_len, cell.context))[0]
        assert cell.target_seconds == undisturbed


def test_a_spell_that_there_is_no_time_to_make_good_does_not_stand_out() -> None:
    machine = Machine(busy)

    def measure(point: Point) -> Seconds:
        seconds = machine.measure(point)
        if point == (2, 1, 128):
            machine.now += 10.0
            return Seconds(10.0, seconds.draft)
        return seconds

    found, _ = survey(machine, measure=measure, max_seconds=25.0)
    seconds = {(c.batch_size, c.draft_len): c.target_seconds for c in found.cells}
    assert seconds[1, 1] == busy(Point(1, 1, 128))[0]
    # No more than a step of as many tokens of more sequences, and the rest is measured as ever.
    assert seconds[1, 2] == busy(Point(1, 2, 128))[0]
    assert seconds[2, 1] == seconds[4, 0] == busy(Point(4, 0, 128))[0]


def test_a_spell_over_the_first_batch_sizes_leaves_out_nothing() -> None:
    machine = Machine(idle)

    def measure(point: Point) -> Seconds:
        seconds = machine.measure(point)
        disturbed = point.draft_len == 1 and len(machine.measured) <= 8
        return Seconds(100 * seconds.target, seconds.draft) if disturbed else seconds

    found, _ = survey(machine, measure=measure)
    assert lengths(found, 8, 128) == [0, 1, 2, 4, 8]


def test_jagged_costs_are_not_measured_for_ever() -> None:
    def jagged(point: Point) -> tuple[float, float]:
        return (0.1 if point.draft_len == 2 else 0.01), 0.0

    machine = Machine(jagged)
    found, _ = survey(machine, Grid((1,), (0, 1, 2, 4), (128,)))
    assert [cell.target_seconds for cell in found.cells] == [0.01, 0.01, 0.1, 0.01]
    assert len(machine.measured) <= 4 * (1 + LEAST_REPEATS) * 2


def test_lengths_take_turns() -> None:
    machine = Machine(idle)
    survey(machine, Grid((1,), (0, 1, 2), (128,)))
    rounds = [point.draft_len for point in machine.measured]
    # Warm-up and first sample of each, then in turns.
    assert rounds == [0, 0, 1, 1, 2, 2, *[0, 1, 2] * (LEAST_REPEATS - 1)]


def test_time_that_runs_out_leaves_something_for_every_batch_size() -> None:
    machine = Machine(busy)
    enough = sum(4 * sum(busy(Point(size, s, 128))) for size in GRID.batch_sizes for s in (0, 1))
    found, told = survey(machine, max_seconds=enough)
    assert machine.now <= enough
    for size in GRID.batch_sizes:
        assert lengths(found, size, 128)[:2] == [0, 1]
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize("max_seconds", [0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0, 2.0])
@pytest.mark.parametrize("cost", [idle, busy])
def test_whenever_time_runs_out_what_is_told_is_of_use(
    cost: Callable[[Point], tuple[float, float]], max_seconds: float
) -> None:
    machine = Machine(cost)
    found, _ = survey(machine, max_seconds=max_seconds)
    groups = {(cell.batch_size, cell.context) for cell in found.cells}
    assert groups
    for size, context in groups:
        assert lengths(found, size, context)[0] == 0
        assert len(lengths(found, size, context)) > 1
        assert context != 128 or lengths(found, size, context)[1] == 1
        assert (size, 128) in groups
    for context in {context for _, context in groups}:
        # A context with fewer batch sizes than another would bend what is interpolated.
        assert {size for size, other in groups if other == context} == {
            size for size, other in groups if other == 128
        }
    # Only the first batch size is measured whatever it takes.
    at_least = sum(2 * sum(cost(Point(1, s, 128))) for s in (0, 1))
    assert machine.now <= max(max_seconds, at_least)


def test_a_stop_is_heeded_before_the_next_point() -> None:
    machine = Machine(idle)
    with pytest.raises(CalibrationStopped):
        survey(machine, stopped=lambda: len(machine.measured) == 5)
    assert len(machine.measured) == 5


@pytest.mark.parametrize("cost", [idle, busy])
def test_progress_rises_to_its_end(cost: Callable[[Point], tuple[float, float]]) -> None:
    _, told = survey(Machine(cost))
    shares = [done / total for done, total, _ in told]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert told[0][2] == "batch 1, length 0, context 128"
    assert all(done < total for done, total, _ in told[:-1])
