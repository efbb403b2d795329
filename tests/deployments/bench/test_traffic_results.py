"""What answers of several arms come to: ratios by segment, the goals, comparisons of runs."""

from pathlib import Path
from typing import Any

import pytest

from deployments.bench.answers import Answer, Slo
from deployments.bench.arrivals import Arrival, Setting
from deployments.bench.compare import compare
from deployments.bench.traffic_report import as_document, as_markdown
from deployments.bench.traffic_results import SettingResult, goals, lower_by
from engine.errors import ConfigError


def answers(*latencies: float) -> list[Answer]:
    return [Answer(0.0, 0.0, 0.1, latency, 10, 5) for latency in latencies]


def setting(name: str, interval_s: float) -> Setting:
    segment = (Arrival(0.0, 0, 5),)
    return Setting(name, (segment, segment), interval_s, 1.0)


def result(name: str, interval_s: float, **by_arm: tuple[float, float]) -> SettingResult:
    """Of arms with one answer in each of two segments."""
    found = SettingResult.of(
        setting(name, interval_s),
        {
            arm.replace("_", " "): {i: answers(latency) for i, latency in enumerate(latencies)}
            for arm, latencies in by_arm.items()
        },
    )
    assert found is not None
    return found


LOW = result("low", 2.0, off=(3.0, 2.0), fixed_2=(2.0, 2.0), fixed_4=(1.8, 1.8), adaptive=(2, 1.6))
HIGH = result("high", 0.3, off=(4, 4), fixed_2=(5, 5), fixed_4=(8, 8), adaptive=(4.2, 4.2))


def test_ratios_are_of_all_answers_with_the_segments_as_spread() -> None:
    ratio = LOW.latency_ratio("adaptive", "off")
    assert ratio is not None
    assert ratio.median == pytest.approx(3.6 / 5.0)
    assert (ratio.minimum, ratio.maximum) == pytest.approx((2 / 3, 1.6 / 2))


def test_only_segments_that_all_arms_answered_count() -> None:
    found = SettingResult.of(
        setting("a", 1.0), {"off": {0: answers(1.0), 1: answers(9.0)}, "adaptive": {0: answers(1)}}
    )
    assert found is not None
    assert found.mean_latency("off") == 1.0
    assert SettingResult.of(setting("a", 1.0), {"off": {0: answers(1.0)}, "adaptive": {}}) is None


def test_goals_are_judged_by_setting_over_all_and_at_low_load() -> None:
    told = {goal.name: goal for goal in goals([LOW, HIGH])}
    low = told["low: adaptive over fixed 4, the best fixed, mean latency"]
    assert low.measured == pytest.approx(1.0)
    assert low.holds
    high = told["high: adaptive over off, the best fixed, mean latency"]
    assert high.measured == pytest.approx(1.05)
    assert not high.holds
    over_all = told["all settings: adaptive below fixed 2, %"]
    assert over_all.measured == pytest.approx(100 * (1 - (0.9 * 0.84) ** 0.5))
    assert over_all.holds
    gain = told["low load (low): off over adaptive, mean latency"]
    assert gain.measured == pytest.approx(2.5 / 1.8)
    assert gain.holds
    assert len(told) == 2 + 3 + 1


def test_an_arm_without_answers_has_no_ratio() -> None:
    failed = [Answer(0.0, 0.0, error="503: full")]
    found = SettingResult.of(setting("a", 1.0), {"off": {0: failed}, "adaptive": {0: answers(1)}})
    assert found is not None
    assert found.latency_ratio("adaptive", "off") is None
    assert found.best_fixed is None
    assert lower_by([found], "adaptive", "off") is None
    assert goals([found]) == []


def failing(one: SettingResult, arm: str, segment: int) -> SettingResult:
    """The same with one more request of an arm, which failed."""
    failed = Answer(0.0, 0.0, error="no whole answer within 300 s", ended_s=300.0)
    parts = [[*part, failed] if i == segment else part for i, part in enumerate(one.answers[arm])]
    return SettingResult(one.setting, {**one.answers, arm: parts})


def test_an_arm_that_failed_with_requests_is_not_the_best_fixed() -> None:
    assert LOW.best_fixed == "fixed 4"
    one = failing(LOW, "fixed 4", 0)
    assert one.best_fixed == "fixed 2"
    for arm in ("off", "fixed 2"):
        one = failing(one, arm, 1)
    assert one.best_fixed == "fixed 4"


def test_arms_that_answered_in_no_segment_together_have_no_ratio() -> None:
    failed = [Answer(0.0, 0.0, error="503")]
    arms = {"off": [answers(1.0), failed], "adaptive": [failed, answers(1.0)]}
    assert SettingResult(LOW.setting, arms).latency_ratio("adaptive", "off") is None


def test_no_goal_of_latency_holds_where_adaptive_failed() -> None:
    assert sum(goal.holds for goal in goals([LOW])) == 4
    found = goals([failing(LOW, "adaptive", 1)])
    assert not any(goal.holds for goal in found)
    assert found[0].name == "low: requests that adaptive failed with"
    assert found[0].measured == 1
    assert all("(without 1 requests that adaptive failed with)" in g.name for g in found[1:])
    nothing = {**LOW.answers, "adaptive": [[Answer(0.0, 0.0, error="503")]] * 2}
    assert [(g.measured, g.holds) for g in goals([SettingResult(LOW.setting, nothing)])] == [
        (2, False)
    ]


def test_the_sentence_over_all_settings_tells_what_failed() -> None:
    found = [failing(LOW, "fixed 4", 0), failing(HIGH, "adaptive", 1)]
    text = as_markdown(document("abc", *found), found, Slo(), [])
    assert "without the requests that failed (fixed 4: 1, adaptive: 1)." in text


# ---- documents


def document(commit: str, *found: SettingResult, **plan: Any) -> dict[str, Any]:
    machine = {
        "cpu": "A",
        "cores": 2,
        "gpu": None,
        "cpu_capability": "AVX2",
        "memory_bytes": 2**30,
        "torch_threads": 1,
        "python": "3.11",
        "versions": {"ray": "1"},
        "commit": commit,
    }
    told = {
        "benchmark": "traffic",
        "model": "m",
        "prompts": "some",
        "seed": 0,
        "temperature": 0,
        "server": {},
        "environment": machine,
        **plan,
    }
    return as_document(told, found, Slo(), {"table": {"4": 3}}, is_complete=True)


def test_the_report_has_ratios_and_goals() -> None:
    text = as_markdown(document("abc", LOW, HIGH), [LOW, HIGH], Slo(), [Path("a/bars.png")])
    assert "![bars](bars.png)" in text
    assert "| off | 2.500 | 2.500 |" in text
    assert "0.72 (0.667 to 0.8)" in text
    assert (
        "| low: adaptive over fixed 4, the best fixed, mean latency | <= 1.02 | 1.000 | yes |"
        in text
    )
    assert "| 1.050 | **no** |" in text
    assert "Static table (largest batch: draft length): 4: 3." in text


def test_runs_that_are_alike_are_compared_segment_by_segment() -> None:
    faster = result("low", 2.0, off=(1.5, 2.0), adaptive=(1.0, 0.8))
    a = document("a", LOW)
    told = compare(a, document("b", faster), across_machines=False)
    assert "| low | off | 0.7 (0.5 to 1) |" in told
    assert "| low | adaptive | 0.5 (0.5 to 0.5) |" in told
    assert "fixed" not in told
    assert "B (commit b) over A (commit a)" in told


def test_unlike_runs_are_refused() -> None:
    a, b = document("a", LOW), document("b", LOW, temperature=1)
    with pytest.raises(ConfigError, match="not measure the same: temperature was 0 and is now 1"):
        compare(a, b, across_machines=False)
    with pytest.raises(ConfigError, match="B holds no results"):
        compare(a, {"goals": []}, across_machines=False)
    other = {**a, "environment": {**a["environment"], "cpu": "B"}}
    with pytest.raises(ConfigError, match='two machines: cpu was "A" and is now "B"'):
        compare(a, other, across_machines=False)
    assert "1 (1 to 1)" in compare(a, other, across_machines=True)


def test_two_drafts_are_compared_and_two_targets_are_not() -> None:
    a = document("a", LOW, weights="1", drafter_settings={"weights": "2"})
    told = compare(
        a, document("b", LOW, weights="1", drafter_settings={"weights": "3"}), across_machines=False
    )
    assert "| low | off | 1 (1 to 1) |" in told
    with pytest.raises(ConfigError, match='not measure the same: weights was "1" and is now "4"'):
        compare(a, document("b", LOW, weights="4"), across_machines=False)


@pytest.mark.parametrize("stopped", ["A", "B"])
def test_a_run_that_was_stopped_is_not_compared(stopped: str) -> None:
    """One that has its first segment alone would stand against one that has both."""
    first = SettingResult.of(LOW.setting, {arm: {0: x[0]} for arm, x in LOW.answers.items()})
    assert first is not None
    part = {**document("a", first), "is_complete": False}
    both = (part, document("b", LOW)) if stopped == "A" else (document("a", LOW), part)
    with pytest.raises(ConfigError, match=f"{stopped} was stopped before its end: give the comm"):
        compare(*both, across_machines=False)
