"""What dashboards, rules and readers may rely on."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.metrics.definitions import METRICS, NUM_DRAFTS, QUEUE_TIME, TABLE_VERSION, Outcome
from cluster.metrics.metric import REPLICA_LABELS, Group, Kind, Metric
from cluster.metrics.reference import BEGIN, END, tables

ROOT = Path(__file__).parents[3]
VLLM = {
    "num_requests_running",
    "num_requests_waiting",
    "num_preemptions",
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "time_to_first_token_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
    "spec_decode_num_accepted_tokens_per_pos",
}
"""Names of vLLM's metrics, without its prefix."""


def test_names_are_unique_and_prometheus_takes_them() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert re.fullmatch(r"paceline_[a-z0-9_]+", metric.name)
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert metric.help.endswith(".")
        assert metric.unit


def test_seconds_are_called_seconds() -> None:
    assert all(metric.name.endswith("_seconds") == (metric.unit == "seconds") for metric in METRICS)


def test_tools_that_read_vllm_find_its_names() -> None:
    assert {f"paceline_{name}" for name in VLLM} <= {metric.name for metric in METRICS}


def test_series_are_named_as_ray_exports_them() -> None:
    assert NUM_DRAFTS.series == "ray_paceline_spec_decode_num_drafts_total"
    assert TABLE_VERSION.series == "ray_paceline_table_version"
    assert QUEUE_TIME.series == "ray_paceline_request_queue_time_seconds"


def test_labels_leave_serves_own_alone() -> None:
    for metric in METRICS:
        assert not {*metric.labels} & {*REPLICA_LABELS, "le"}


def test_buckets_rise() -> None:
    for metric in METRICS:
        assert all(low < high for low, high in pairwise(metric.buckets))


def test_a_histogram_and_nothing_else_has_buckets() -> None:
    with pytest.raises(ValueError, match="x: a histogram"):
        Metric("x", Kind.HISTOGRAM, Group.LOAD, "seconds", "X.")
    with pytest.raises(ValueError, match="x: a histogram"):
        Metric("x", Kind.GAUGE, Group.LOAD, "seconds", "X.", buckets=(1.0,))


def test_metrics_stand_in_the_order_of_their_groups() -> None:
    order = [list(Group).index(metric.group) for metric in METRICS]
    assert order == sorted(order)
    assert set(order) == set(range(len(Group)))


def test_every_outcome_is_told_in_the_help() -> None:
    (requests,) = [metric for metric in METRICS if metric.labels == ("outcome",)]
    assert all(outcome in requests.help for outcome in Outcome)


def test_definitions_rules_and_configuration_need_no_ray() -> None:
    code = (
        "import sys, cluster.metrics.definitions, cluster.metrics.prometheus, "
        "cluster.metrics.reference; sys.exit('ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_docs_have_the_tables_as_they_are() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    written = text.partition(BEGIN)[2].partition(END)[0]
    assert written.strip() == tables().strip(), (
        "run python -m cluster.metrics.reference docs/metrics.md"
    )
