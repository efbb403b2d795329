"""Curves through points, and their means over a binomial number of draft tokens."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.lines import Line, Tails

CONVEX = Line([0, 1, 2, 4, 8], [1.0, 1.0, 1.5, 3.5, 9.0])


def test_a_line_goes_through_its_points_and_straight_between_them() -> None:
    assert [CONVEX(x) for x in (0, 1, 2, 4, 8)] == pytest.approx([1.0, 1.0, 1.5, 3.5, 9.0])
    assert CONVEX(3) == pytest.approx(2.5)


def test_beyond_the_last_point_it_goes_on_as_steeply() -> None:
    assert CONVEX(12) == pytest.approx(9.0 + 4 * (9.0 - 3.5) / 4)


def test_beyond_a_last_stretch_that_noise_made_flat_it_rises_as_on_average() -> None:
    assert Line([0, 2, 4], [1.0, 3.0, 3.0])(6) == pytest.approx(3.0 + 2 * (3.0 - 1.0) / 4)


def test_a_single_point_is_a_constant() -> None:
    assert Line([0], [2.0])(7) == 2.0


@given(
    count=st.integers(1, 40),
    chance=st.floats(0, 1),
    step=st.floats(0.01, 2.0),
    rises=st.lists(st.floats(0, 1), min_size=4, max_size=4),
)
def test_the_mean_is_that_over_all_numbers_of_successes(
    count: int, chance: float, step: float, rises: list[float]
) -> None:
    line = Line([0, 1, 3, 7], [sum(rises[: i + 1]) for i in range(4)])
    mean = sum(
        math.comb(count, m) * chance**m * (1 - chance) ** (count - m) * line(step * m)
        for m in range(count + 1)
    )
    assert line.mean_over(step, Tails(count, chance)) == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize("chance", [1e-6, 0.3, 1 - 1e-6])
def test_a_thousand_sequences_lose_nothing_to_underflow(chance: float) -> None:
    assert Tails(1000, chance).mean_beyond(0.0) == pytest.approx(1000 * chance)
