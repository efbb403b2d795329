"""Arrivals: intervals, traces, days; and the figures drawn from them."""

import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from deployments.simulate.arms import DraftAcceptance, choices, parse_acceptance, parse_arms
from deployments.simulate.outcome import Outcomes, Slo, figures
from deployments.simulate.search import fewest
from deployments.simulate.traffic import (
    Arrival,
    at_rate,
    fitting,
    gamma,
    over_a_day,
    read_trace,
    repeated,
)
from engine.errors import ConfigError
from tests.deployments.simulate.fleets import small_profile

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_gamma_intervals_have_the_mean_and_the_variation_asked_for() -> None:
    arrivals = gamma(0.5, 2.0, 20_000, 10, 20, seed=3)
    gaps = [after.at_s - before.at_s for before, after in pairwise(arrivals)]
    assert statistics.mean(gaps) == pytest.approx(0.5, rel=0.05)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(2.0, rel=0.05)
    assert gamma(0.5, 2.0, 9, 10, 20, 3) == arrivals[:9]
    assert gamma(0.5, 2.0, 9, 10, 20, 4) != arrivals[:9]


def test_a_trace_is_read_and_goes_on_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        f"{HEAD}2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.4799600,3180,0\n"
    )
    trace = read_trace(file)
    assert trace == [Arrival(0.0, 4808, 10), Arrival(0.5, 3180, 1)]
    assert [one.at_s for one in repeated(trace, 5)] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_trace_in_another_order_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"{HEAD}2023-11-16 18:17:04.5,2,2\n2023-11-16 18:17:04,1,1\n")
    trace = read_trace(file)
    assert trace == [Arrival(0.0, 1, 1), Arrival(0.5, 2, 2)]
    assert [one.at_s for one in at_rate(trace, 1.0)] == [0.0, 2.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "no column TIMESTAMP"),
        (HEAD, "no requests"),
        (f"{HEAD}2023-11-16 18:17:03.9,x,1\n", "line 2"),
        (f"{HEAD}yesterday,1,1\n", "line 2"),
        (f"{HEAD}2023-11-16 18:17:03.9,5\n", "line 2"),
    ],
)
def test_a_bad_trace_is_refused_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_trace(file)


def test_a_day_has_its_quietest_hour_at_the_start_and_all_its_requests() -> None:
    steady = at_rate([Arrival(float(n), 1, 1) for n in range(1, 24_001)], 10.0)
    assert steady[-1].at_s == pytest.approx(2400.0)
    day = over_a_day(steady, 0.6)
    assert len(day) == len(steady)
    assert [one.at_s for one in day] == sorted(one.at_s for one in day)
    by_hour = [sum(h * 100 <= one.at_s < (h + 1) * 100 for one in day) for h in range(24)]
    # 10 a second for 100 s, times (1 -+ 0.6), a little less at an hour's mean.
    assert by_hour[0] == pytest.approx(403, rel=0.02)
    assert by_hour[12] == pytest.approx(1597, rel=0.02)


def test_prompts_are_cut_to_the_context_limit() -> None:
    arrivals = [Arrival(0.0, 10, 10), Arrival(1.0, 5000, 100), Arrival(2.0, 10, 9000)]
    found, num_cut = fitting(arrivals, 1000)
    assert num_cut == 2
    assert found == [Arrival(0.0, 10, 10), Arrival(1.0, 900, 100), Arrival(2.0, 10, 500)]


def test_an_objective_counts_those_that_keep_both_of_all_that_came() -> None:
    outcomes = Outcomes([Arrival(0.0, 1, 11)] * 4)
    for number, (first_s, end_s) in enumerate([(1.0, 2.0), (2.5, 3.0), (1.0, 9.0)]):
        outcomes.first(number, first_s)
        outcomes.ended(number, end_s)
    outcomes.num_arrived, outcomes.num_refused = 4, 1
    slo = Slo(ttft_s=2.0, tpot_s=0.1, share=0.25)
    assert outcomes.attainment(slo) == 0.25
    told = outcomes.as_json(slo)
    assert told["slo_holds"]
    assert told["goodput_per_s"] == pytest.approx(1 / 9.0)
    assert (told["answered"], told["refused"], told["unanswered"]) == (3, 1, 0)


def test_figures_of_nothing_are_none() -> None:
    assert figures([]) is None


@pytest.mark.parametrize("needed", [1, 2, 5, 37, 100])
@pytest.mark.parametrize("guess", [1, 10, 100])
def test_the_fewest_are_found(needed: int, guess: int) -> None:
    asked: list[int] = []

    def holds(size: int) -> bool:
        asked.append(size)
        return size >= needed

    assert fewest(holds, guess, 100) == needed
    assert len(asked) == len(set(asked)), "asked twice"
    assert fewest(lambda size: False, guess, 100) is None


def test_the_papers_table_falls_with_the_batch_and_the_arms_are_what_they_are_called() -> None:
    found = choices(small_profile(), DraftAcceptance((0.7,)))
    rungs = found["table"].rungs
    assert rungs
    assert all(before[1] > after[1] for before, after in pairwise(rungs))
    assert (found["off"].rungs, found["fixed-4"].max_draft_len) == ((), 4)


def test_requests_differ_by_the_spread_alone() -> None:
    alike = DraftAcceptance((0.7, 0.5))
    assert alike.of("1") == alike.of("2") == (0.7, 0.5)
    unlike = [DraftAcceptance((0.7,), 0.1, seed=1).of(str(n))[0] for n in range(2000)]
    assert statistics.mean(unlike) == pytest.approx(0.7, abs=0.01)
    assert statistics.stdev(unlike) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("text", ["", "x", "1.5", "0.5,-1", ",".join(["0.5"] * 17)])
def test_bad_acceptance_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--acceptance must be"):
        parse_acceptance(text, 0.0, 0)


def test_unknown_arms_are_refused() -> None:
    assert parse_arms("off, table,off") == ("off", "table")
    with pytest.raises(ConfigError, match="got 'fixed-3'"):
        parse_arms("off,fixed-3")
