"""Rules as Prometheus' own tool sees them: they are valid, and fire when they should."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.metrics import definitions as defined
from cluster.metrics.definitions import METRICS
from cluster.metrics.metric import Metric
from cluster.metrics.prometheus import RULE_FILE, Observed, find_program, write_folder
from cluster.metrics.rules import ALERTS, RECORDINGS, STALE_S, rule_file

REPLICA = 'application="paceline",deployment="paceline",replica="a"'
NO_PROMETHEUS = "no promtool: `make observe` gets Debian's Prometheus, which brings it"


@pytest.fixture(scope="module")
def promtool() -> str:
    found = find_program("promtool")
    if found is None:
        pytest.skip(NO_PROMETHEUS)
    return found


def check(promtool: str, *arguments: str | Path) -> None:
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("api_key", [None, "secret"])
def test_configuration_and_rules_are_valid(
    promtool: str, tmp_path: Path, api_key: str | None
) -> None:
    config = write_folder(tmp_path, Observed("http://127.0.0.1:8000", api_key))
    check(promtool, "check", "config", config)
    check(promtool, "check", "rules", "--lint=all", "--lint-fatal", tmp_path / RULE_FILE)


def series(metric: Metric | str, values: str, labels: str = "") -> dict[str, str]:
    name = metric if isinstance(metric, str) else metric.series
    return {"series": f"{name}{{{REPLICA}{labels}}}", "values": values}


ACCEPTED, DRAFTED = defined.NUM_ACCEPTED_TOKENS, defined.NUM_DRAFT_TOKENS
RUNNING, WAITING = defined.NUM_REQUESTS_RUNNING, defined.NUM_REQUESTS_WAITING
FULL = ',outcome="full"'
ALERTED: tuple[tuple[str, str, list[dict[str, str]], str, bool], ...] = (
    # What happens, the alert, what is scraped every 15 s, when it is asked, and if it fires then.
    (
        "stuck",
        "PacelineReplicaNotStepping",
        [series(RUNNING, "4x60"), series(WAITING, "0x60"), series(defined.STEPS, "600x60")],
        "10m",
        True,
    ),
    (
        "no step ever",
        "PacelineReplicaNotStepping",
        [series(RUNNING, "0x60"), series(WAITING, "1x60")],
        "10m",
        True,
    ),
    (
        "busy",
        "PacelineReplicaNotStepping",
        [series(RUNNING, "4x60"), series(WAITING, "0x60"), series(defined.STEPS, "0+150x60")],
        "10m",
        False,
    ),
    (
        "idle",
        "PacelineReplicaNotStepping",
        [series(RUNNING, "0x60"), series(WAITING, "0x60"), series(defined.STEPS, "600x60")],
        "10m",
        False,
    ),
    (
        "collapsed",
        "PacelineAcceptanceCollapsed",
        [series(DRAFTED, "0+100x100"), series(ACCEPTED, "0+60x40 2405+5x60")],
        "22m",
        True,
    ),
    (
        "nothing is accepted any more",
        "PacelineAcceptanceCollapsed",
        [series(DRAFTED, "0+100x100"), series(ACCEPTED, "0+60x40 2400x60")],
        "22m",
        True,
    ),
    (
        "as usual",
        "PacelineAcceptanceCollapsed",
        [series(DRAFTED, "0+100x100"), series(ACCEPTED, "0+60x100")],
        "22m",
        False,
    ),
    (
        "nothing is drafted any more",
        "PacelineAcceptanceCollapsed",
        [series(DRAFTED, "0+100x40 4000x60"), series(ACCEPTED, "0+60x40 2400x60")],
        "22m",
        False,
    ),
    (
        "silent",
        "PacelineTableStale",
        [series(defined.POLICY_SILENCE, f"{STALE_S + 5}+15x40")],
        "5m",
        True,
    ),
    (
        "answering",
        "PacelineTableStale",
        [series(defined.POLICY_SILENCE, "2 17 " * 20)],
        "5m",
        False,
    ),
    (
        "refusing",
        "PacelineQueueFull",
        [series(defined.REQUESTS, "0+3x40", FULL)],
        "5m",
        True,
    ),
    (
        "refused some once",
        "PacelineQueueFull",
        [series(defined.REQUESTS, "7x40", FULL)],
        "5m",
        False,
    ),
    (
        "nearly full",
        "PacelineKVNearlyFull",
        [series(defined.KV_BLOCKS, "100x60"), series(defined.KV_BLOCKS_USED, "97x60")],
        "10m",
        True,
    ),
    (
        "room left",
        "PacelineKVNearlyFull",
        [series(defined.KV_BLOCKS, "100x60"), series(defined.KV_BLOCKS_USED, "90x60")],
        "10m",
        False,
    ),
)


def test_alerts_fire_when_they_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    severities = {alert.name: alert.severity for alert in ALERTS}
    gone = [{"series": 'up{job="paceline",instance="a:8080"}', "values": "1x10 0x30"}]
    tests = [
        alert_test(name, alert, given, at, f'{REPLICA},severity="{severities[alert]}"', fires)
        for name, alert, given, at, fires in ALERTED
    ]
    by_instance = 'instance="a:8080",job="paceline",severity="critical"'
    tests += [
        alert_test("gone", "PacelineMetricsGone", gone, "9m", by_instance, True),
        alert_test("still there", "PacelineMetricsGone", gone, "2m", by_instance, False),
    ]
    assert {test["name"].partition(":")[0] for test in tests} == set(severities)
    run_unit_tests(promtool, tmp_path, tests)


def alert_test(
    name: str, alert: str, given: list[dict[str, str]], at: str, labels: str, fires: bool
) -> dict[str, Any]:
    state = f'alertname="{alert}",alertstate="firing"'
    expected = [{"labels": f"ALERTS{{{state},{labels}}}", "value": 1}] if fires else []
    asked = {"expr": f"ALERTS{{{state}}}", "eval_time": at, "exp_samples": expected}
    return {"name": f"{alert}: {name}", "input_series": given, "promql_expr_test": [asked]}


def test_recorded_series_have_the_values_that_their_help_says(
    promtool: str, tmp_path: Path
) -> None:
    given = [
        series(defined.STEPS, "0+600x40"),
        series(defined.STEPS_WITHOUT_DRAFT, "0+150x40"),
        series(defined.ROUNDS, "0+2400x40"),
        series(defined.GENERATION_TOKENS, "0+6000x40"),
        series(DRAFTED, "0+5400x40"),
        series(ACCEPTED, "0+3600x40"),
        series(defined.NUM_DRAFT_TOKENS_PER_POS, "0+1800x40", ',position="0"'),
        series(defined.NUM_ACCEPTED_TOKENS_PER_POS, "0+1440x40", ',position="0"'),
        series(defined.TARGET_SECONDS, "0+10x40"),
        series(defined.DRAFT_SECONDS, "0+2x40"),
        series(defined.VERIFY_SECONDS, "0+0.5x40"),
        series(defined.PROBE_SECONDS, "0+0.125x40"),
        series(defined.KV_BLOCKS, "64x40"),
        series(defined.KV_BLOCKS_USED, "16x40"),
        series(defined.PREFIX_CACHE_QUERIES, "0+100x40"),
        *(
            series(f"{defined.TIME_TO_FIRST_TOKEN.series}_bucket", values, f',le="{le}"')
            for le, values in (("0.1", "0x40"), ("0.2", "0+60x40"), ("+Inf", "0+60x40"))
        ),
    ]
    wanted = {
        "application:paceline_generation_tokens:rate1m": 400,
        "replica:paceline_batch_size:mean_rate1m": 4,
        "replica:paceline_tokens_per_round:mean_rate1m": 2.5,
        "replica:paceline_steps_without_draft:ratio_rate1m": 0.25,
        "replica:paceline_acceptance:ratio_rate5m": 3600 / 5400,
        "replica:paceline_acceptance:ratio_rate6h": 3600 / 5400,
        "replica_position:paceline_acceptance:ratio_rate5m": 0.8,
        "replica:paceline_probe_seconds:ratio_rate5m": 0.01,
        "replica:paceline_kv_blocks_used:ratio": 0.25,
        "replica:paceline_prefix_cache_hits:ratio_rate5m": 0,  # there was no hit at all
        "application:paceline_time_to_first_token_seconds:p50_rate5m": 0.15,
    }
    assert set(wanted) <= {rule.name for rule in RECORDINGS}
    asked = [
        {
            "expr": f"round(max({name}), 0.0001)",  # the last digits are of binary fractions
            "eval_time": "9m",
            "exp_samples": [{"value": round(value, 4)}],
        }
        for name, value in wanted.items()
    ]
    tests = [{"name": "recorded", "input_series": given, "promql_expr_test": asked}]
    run_unit_tests(promtool, tmp_path, tests)


def test_rules_ask_for_series_that_are_exported() -> None:
    known = {metric.series for metric in METRICS}
    for expr in (*(rule.expr for rule in RECORDINGS), *(alert.expr for alert in ALERTS)):
        words = expr.replace("(", " ").replace("{", " ").replace("[", " ").split()
        asked = {word.rstrip(")").removesuffix("_bucket") for word in words if "ray_" in word}
        assert asked <= known


def run_unit_tests(promtool: str, folder: Path, tests: list[dict[str, Any]]) -> None:
    (folder / RULE_FILE).write_text(yaml.safe_dump(rule_file()))
    document = {
        "rule_files": [RULE_FILE],
        "evaluation_interval": "15s",
        # Alerts come in a group of their own, after what they ask for was recorded.
        "group_eval_order": [group["name"] for group in rule_file()["groups"]],
        "tests": [{"interval": "15s", **test} for test in tests],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    check(promtool, "test", "rules", folder / "test.yml")
