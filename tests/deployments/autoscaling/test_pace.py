"""Seconds a token: by the cost model, and by what was measured where there is none."""

import pytest

from benchmarks.fleet import made_up_calibration
from deployments.autoscaling.pace import Pace
from policy.board import Introduction
from policy.learner import Learner
from policy.stats import StatsWindow, StepShape
from policy.table import SpeculationTable, fixed_rungs

PLAIN = SpeculationTable(0, ())
MAX_BATCH = 32


def introduction() -> Introduction:
    return Introduction("kind", "", MAX_BATCH, 8, calibration=made_up_calibration())


def test_the_cost_model_knows_batches_that_were_never_there() -> None:
    pace = Pace(MAX_BATCH, introduction())
    told = dict(pace.seconds_per_token(PLAIN))
    assert list(told) == [1, 2, 4, 8, 16, 32]
    # As calibrated, at the context that is expected before any was seen.
    assert told[16] == pytest.approx(0.02 + 0.0015 * 16 * (1 + 256 / 4096), rel=0.02)


def test_drafts_are_in_it() -> None:
    pace = Pace(MAX_BATCH, introduction())
    plain = dict(pace.seconds_per_token(PLAIN))
    drafting = dict(pace.seconds_per_token(SpeculationTable(1, fixed_rungs(4))))
    assert drafting[32] / plain[32] > 1.5 > drafting[1] / plain[1]


def test_the_speedup_is_that_of_the_seconds_a_token() -> None:
    pace = Pace(MAX_BATCH, introduction())
    drafting = SpeculationTable(1, fixed_rungs(4))
    plain, fast = dict(pace.seconds_per_token(PLAIN)), dict(pace.seconds_per_token(drafting))
    for size in (1, 8, 32):
        assert pace.speedup(size, drafting) == pytest.approx(plain[size] / fast[size])
        assert pace.speedup(size, PLAIN) == 1.0
    assert Pace(MAX_BATCH).speedup(1, drafting) is None


def test_a_prompt_token_costs_what_one_more_in_a_pass_does() -> None:
    each_s = Pace(MAX_BATCH, introduction()).seconds_per_prompt_token()
    assert each_s == pytest.approx(0.0015 * (1 + 256 / 4096), rel=0.02)


def test_what_the_actor_has_learned_is_taken_over() -> None:
    pace = Pace(MAX_BATCH)
    assert pace.seconds_per_token(PLAIN) == ()
    learner = Learner(max_batch=MAX_BATCH, max_draft_len=8)
    pace.learn(learner.as_json())  # it knows no cost either
    pace.learn({"steps": "none"})
    assert pace.seconds_per_token(PLAIN) == ()
    learner.calibrate(made_up_calibration())
    pace.learn(learner.as_json())
    assert len(pace.seconds_per_token(PLAIN)) == 6


def test_without_a_calibration_the_steps_that_were_made_tell() -> None:
    pace = Pace(MAX_BATCH)
    window = StatsWindow()
    for _ in range(10):
        window.record_step(StepShape(3, 2, 6), 100.0, 0.05, 0.01)
        window.record_rounds(2, 1, 2, times=3)
    window.target_seconds = 0.7  # 0.2 of it in steps that computed prompts too
    pace.observe(window, prompt_tokens=100)
    assert dict(pace.seconds_per_token(PLAIN)) == {4: pytest.approx(0.03)}
    assert pace.seconds_per_prompt_token() == pytest.approx(0.002)
