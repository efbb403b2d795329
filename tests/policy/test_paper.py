"""The paper's model: fits that are found again, and its best length against brute force."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.paper import best_length, fit_cost, fit_power_law, seconds_per_token
from tests.policy.grids import BATCH_SIZES, CONTEXT, grid

LONGEST = 16.0
FINE = [LONGEST * i / 4000 for i in range(4001)]

COSTS = {
    "alpha": st.floats(0.0, 0.02),
    "beta": st.floats(0.005, 0.1),
    "t_s": st.floats(0.0001, 0.02),
    "c": st.floats(0.05, 1.0),
    "gamma": st.floats(0.1, 1.0),
}


@given(**COSTS)
def test_the_equation_gives_what_brute_force_does(
    alpha: float, beta: float, t_s: float, c: float, gamma: float
) -> None:
    found = best_length(alpha, beta, t_s, c, gamma, LONGEST)
    per_token = [seconds_per_token(alpha, beta, t_s, c, gamma, s) for s in FINE]
    if found == 0.0:
        # No draft of a whole token or more is any better.
        assert min(per_token[250:]) >= beta * (1 - 1e-9)
    else:
        assert seconds_per_token(alpha, beta, t_s, c, gamma, found) <= min(per_token) * (1 + 1e-9)
        assert 0.0 < found <= LONGEST


@given(**COSTS)
def test_it_falls_as_the_target_gets_busier(
    alpha: float, beta: float, t_s: float, c: float, gamma: float
) -> None:
    lengths = [best_length(alpha * k, beta, t_s, c, gamma, LONGEST) for k in (1, 1.5, 2, 4, 8)]
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(lengths))


def test_the_length_of_the_equation() -> None:
    """dT/ds = 0 at the answer, by differences."""
    alpha, beta, t_s, c, gamma = 0.001, 0.03, 0.002, 0.8, 0.6
    s = best_length(alpha, beta, t_s, c, gamma, LONGEST)
    assert 1 < s < LONGEST
    right = c * gamma * s ** (gamma - 1) / (c * (1 - gamma) * s**gamma + 1)
    assert (alpha + t_s) / beta == pytest.approx(right)


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_drafts_that_can_not_pay_are_not_made(gamma: float) -> None:
    assert best_length(0.02, 0.03, 0.005, 0.3, gamma, LONGEST) == 0.0
    assert best_length(0.0001, 0.03, 0.0001, 0.0, gamma, LONGEST) == 0.0
    assert best_length(0.0001, 0.03, 0.0001, 0.9, gamma, 0.0) == 0.0


def test_drafts_that_always_pay_are_as_long_as_may_be() -> None:
    assert best_length(0.0, 0.03, 1e-7, 0.9, 0.9, LONGEST) == LONGEST
    assert best_length(0.0, 0.03, 1e-7, 0.9, 1.0, LONGEST) == LONGEST


@given(st.floats(0.1, 1.0), st.floats(0.1, 1.0))
def test_a_power_law_is_found_again(c: float, gamma: float) -> None:
    found = fit_power_law([(s, c * s**gamma) for s in range(1, 6)])
    assert found == pytest.approx((c, gamma), rel=1e-6)


def test_power_laws_of_little() -> None:
    assert fit_power_law([]) == (0.0, 1.0)
    assert fit_power_law([(1, 0.0)]) == (0.0, 1.0)
    c, gamma = fit_power_law([(1, 0.5)])
    assert c * 2**gamma == pytest.approx(0.5 + 0.5**2), "the next is kept as often"


def test_gamma_is_at_most_one() -> None:
    assert fit_power_law([(1, 0.1), (2, 0.9)])[1] == 1.0


def test_straight_cost_is_fitted_without_error() -> None:
    calibration = grid(lambda b, s: 0.02 + 0.001 * b * s, lambda b, s: s * 0.003 * b)
    fit = fit_cost(calibration, CONTEXT)
    assert fit.beta == pytest.approx(0.02)
    assert fit.alpha == pytest.approx({b: 0.001 * b for b in BATCH_SIZES})
    assert fit.draft_seconds == pytest.approx({b: 0.003 * b for b in BATCH_SIZES})
    assert fit.error == pytest.approx(0.0, abs=1e-9)
    assert fit.error_by_batch == pytest.approx(0.0, abs=1e-9)


def test_one_beta_for_all_is_told_with_its_error() -> None:
    """Cost without drafts that grows with the batch is what the paper's form leaves out."""
    fit = fit_cost(grid(lambda b, s: 0.01 * b + 0.001 * b * s), CONTEXT)
    assert fit.beta_by_batch == pytest.approx({b: 0.01 * b for b in BATCH_SIZES})
    assert fit.error_by_batch == pytest.approx(0.0, abs=1e-9)
    assert fit.error > 0.2


def test_a_context_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="context 7 was not measured"):
        fit_cost(grid(), 7)
