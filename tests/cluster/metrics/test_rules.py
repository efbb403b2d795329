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
LABELS = {"application": "paceline", "deployment": "paceline", "replica": "a"}
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
# Values are a minute apart. An engine that makes ten steps a second, with four requests.
BUSY = [
    series(defined.NUM_REQUESTS_RUNNING, "4x30"),
    series(defined.NUM_REQUESTS_WAITING, "0x30"),
    series(defined.STEPS, "0+600x30"),
]
STUCK = [
    series(defined.NUM_REQUESTS_RUNNING, "4x30"),
    series(defined.NUM_REQUESTS_WAITING, "0x30"),
    series(defined.STEPS, "600x30"),
]
IDLE = [
    series(defined.NUM_REQUESTS_RUNNING, "0x30"),
    series(defined.NUM_REQUESTS_WAITING, "0x30"),
    series(defined.STEPS, "600x30"),
]
USUAL = [series(DRAFTED, "0+100x60"), series(ACCEPTED, "0+60x60")]
COLLAPSED = [series(DRAFTED, "0+100x60"), series(ACCEPTED, "0+60x40 2405+5x20")]
FULL = ',outcome="full"'


@pytest.mark.parametrize(
    ("alert", "input_series", "at", "fires"),
    [
        pytest.param("PacelineReplicaNotStepping", STUCK, "10m", True, id="stuck"),
        pytest.param("PacelineReplicaNotStepping", BUSY, "10m", False, id="busy"),
        pytest.param("PacelineReplicaNotStepping", IDLE, "10m", False, id="idle"),
        pytest.param("PacelineReplicaNotStepping", STUCK[:2], "10m", True, id="no step ever"),
        pytest.param("PacelineAcceptanceCollapsed", COLLAPSED, "58m", True, id="collapsed"),
        pytest.param("PacelineAcceptanceCollapsed", USUAL, "58m", False, id="as usual"),
        pytest.param(
            "PacelineAcceptanceCollapsed",
            [series(DRAFTED, "0+100x40 4000x20"), series(ACCEPTED, "0+60x40 2400x20")],
            "58m",
            False,
            id="nothing is drafted any more",
        ),
        pytest.param(
            "PacelineAcceptanceCollapsed",
            [series(DRAFTED, "0+100x40 4100+100x20"), series(ACCEPTED, "0+60x40 2400x20")],
            "58m",
            True,
            id="nothing is accepted any more",
        ),
        pytest.param(
            "PacelineTableStale",
            [series(defined.POLICY_SILENCE, f"{STALE_S + 5}+60x10")],
            "5m",
            True,
            id="silent",
        ),
        pytest.param(
            "PacelineTableStale",
            [series(defined.POLICY_SILENCE, "30 2 30 2 30 2 30")],
            "5m",
            False,
            id="answering",
        ),
        pytest.param(
            "PacelineQueueFull",
            [series(defined.REQUESTS, "0 5 9 20 31 40 55", FULL)],
            "5m",
            True,
            id="refusing",
        ),
        pytest.param(
            "PacelineQueueFull",
            [series(defined.REQUESTS, "7x10", FULL)],
            "5m",
            False,
            id="refused once",
        ),
        pytest.param(
            "PacelineKVNearlyFull",
            [series(defined.KV_BLOCKS, "100x20"), series(defined.KV_BLOCKS_USED, "97x20")],
            "10m",
            True,
            id="nearly full",
        ),
        pytest.param(
            "PacelineKVNearlyFull",
            [series(defined.KV_BLOCKS, "100x20"), series(defined.KV_BLOCKS_USED, "90x20")],
            "10m",
            False,
            id="room left",
        ),
    ],
)
def test_alerts(
    promtool: str,
    tmp_path: Path,
    alert: str,
    input_series: list[dict[str, str]],
    at: str,
    fires: bool,
) -> None:
    rules = yaml.safe_dump(rule_file())
    (tmp_path / RULE_FILE).write_text(rules)
    (wanted,) = [each for each in ALERTS if each.name == alert]
    query = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    labels = f'alertname="{alert}",alertstate="firing",{REPLICA},severity="{wanted.severity}"'
    expected = [{"labels": f"ALERTS{{{labels}}}", "value": 1}] if fires else []
    run_unit_test(
        promtool,
        tmp_path,
        input_series,
        {"promql_expr_test": [{"expr": query, "eval_time": at, "exp_samples": expected}]},
    )


def test_recorded_series_have_the_values_that_their_help_says(
    promtool: str, tmp_path: Path
) -> None:
    (tmp_path / RULE_FILE).write_text(yaml.safe_dump(rule_file()))
    given = [
        series(defined.STEPS, "0+600x10"),
        series(defined.STEPS_WITHOUT_DRAFT, "0+150x10"),
        series(defined.ROUNDS, "0+2400x10"),
        series(defined.GENERATION_TOKENS, "0+6000x10"),
        series(DRAFTED, "0+5400x10"),
        series(ACCEPTED, "0+3600x10"),
        series(defined.NUM_DRAFT_TOKENS_PER_POS, "0+1800x10", ',position="0"'),
        series(defined.NUM_ACCEPTED_TOKENS_PER_POS, "0+1440x10", ',position="0"'),
        series(defined.TARGET_SECONDS, "0+40x10"),
        series(defined.DRAFT_SECONDS, "0+8x10"),
        series(defined.VERIFY_SECONDS, "0+2x10"),
        series(defined.PROBE_SECONDS, "0+0.5x10"),
        series(defined.KV_BLOCKS, "64x10"),
        series(defined.KV_BLOCKS_USED, "16x10"),
        series(defined.PREFIX_CACHE_QUERIES, "0+100x10"),
        *(
            series(f"{defined.TIME_TO_FIRST_TOKEN.series}_bucket", values, f',le="{le}"')
            for le, values in (("0.1", "0x10"), ("0.2", "0+60x10"), ("+Inf", "0+60x10"))
        ),
    ]
    wanted = {
        "application:paceline_generation_tokens:rate1m": 100,
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
    tests = [
        {
            # Rounded: how Prometheus extrapolates is its own affair.
            "expr": f"round(max({name}), 0.0001)",
            "eval_time": "9m",
            "exp_samples": [{"value": round(value, 4)}],
        }
        for name, value in wanted.items()
    ]
    run_unit_test(promtool, tmp_path, given, {"promql_expr_test": tests})


def test_rules_ask_for_series_that_are_exported() -> None:
    known = {metric.series for metric in METRICS}
    for rule in (*RECORDINGS, *ALERTS):
        words = rule.expr.replace("(", " ").replace("{", " ").replace("[", " ").split()
        asked = {word.rstrip(")").removesuffix("_bucket") for word in words if "ray_" in word}
        assert asked <= known


def run_unit_test(
    promtool: str, folder: Path, given: list[dict[str, str]], expected: dict[str, Any]
) -> None:
    test = {
        "rule_files": [RULE_FILE],
        "evaluation_interval": "1m",
        # Alerts come in a group of their own, after what they ask for was recorded.
        "group_eval_order": [group["name"] for group in rule_file()["groups"]],
        "tests": [{"interval": "1m", "input_series": given, **expected}],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(test, sort_keys=False))
    check(promtool, "test", "rules", folder / "test.yml")
