"""What is scraped from a running application agrees with what its engine counted."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.metrics import definitions as defined
from cluster.metrics.metric import Metric
from cluster.metrics.prometheus import Observed, command, find_program, write_folder
from cluster.metrics.rules import (
    ACCEPTANCE,
    ACCEPTANCE_PER_POS,
    KV_USE,
    MEAN_BATCH_SIZE,
    STEPS_AT_0,
    TOKENS_PER_SECOND,
)
from tests.serve.conftest import WAIT_S, RunningApp, eventually, free_port

ENGINE: dict[Metric, Callable[[dict[str, Any]], float]] = {
    defined.STEPS: lambda engine: engine["steps"],
    defined.PROMPT_TOKENS: lambda engine: engine["num_prompt_tokens"],
    defined.PREFIX_CACHE_QUERIES: lambda engine: engine["prefix_cache_queries"],
    defined.PREFIX_CACHE_HITS: lambda engine: engine["prefix_cache_hits"],
}
"""Of /health: what the engine has counted since it began."""
POLICY: dict[Metric, Callable[[dict[str, Any]], float]] = {
    defined.STEPS: lambda replica: replica["steps"],
    defined.STEPS_WITHOUT_DRAFT: lambda replica: replica["steps_without_draft"],
    defined.ROUNDS: lambda replica: replica["rounds"],
    defined.GENERATION_TOKENS: lambda replica: replica["emitted_tokens"],
    defined.NUM_DRAFT_TOKENS: lambda replica: replica["drafted_tokens"],
    defined.NUM_ACCEPTED_TOKENS: lambda replica: replica["accepted_tokens"],
}
"""Of /policy: what the policy actor was told, since it began."""


RECORDED = (
    TOKENS_PER_SECOND,
    MEAN_BATCH_SIZE,
    STEPS_AT_0,
    KV_USE,
    ACCEPTANCE,
    ACCEPTANCE_PER_POS,
)


class Scraped:
    """Of the one replica, from Ray's own endpoint."""

    def __init__(self, app: RunningApp) -> None:
        self._app = app

    def total(self, metric: Metric, **labels: str) -> float:
        """Of a counter, all its series together, or those with these labels."""
        replica = self._app.get("/policy")["replicas"][0]["replica_id"]
        wanted = {"replica": replica, **labels}
        found = (
            sample.value
            for sample in self._samples()
            if sample.name == metric.series and wanted.items() <= sample.labels.items()
        )
        return float(sum(found))

    def count(self, metric: Metric) -> float:
        """Of a histogram."""
        name = f"{metric.series}_count"
        return float(sum(sample.value for sample in self._samples() if sample.name == name))

    def _samples(self) -> list[Any]:
        (group,) = httpx.get(f"{self._app.url}/metrics/targets", timeout=WAIT_S).json()
        (address,) = group["targets"]
        text = httpx.get(f"http://{address}/metrics", timeout=WAIT_S).text
        return [s for family in text_string_to_metric_families(text) for s in family.samples]


def told_to_the_policy(app: RunningApp) -> dict[Metric, float]:
    (replica,) = app.get("/policy")["replicas"]
    return {metric: read(replica) for metric, read in POLICY.items()}


def settled(app: RunningApp, scraped: Scraped) -> None:
    """Return once all that the engine counted has been exported."""

    def is_settled() -> bool:
        engine = app.engine()
        return app.is_idle() and all(
            scraped.total(metric) == read(engine) for metric, read in ENGINE.items()
        )

    eventually(is_settled, "the engine's counts are exported")


def test_metrics_agree_with_the_engine_to_the_token(app: RunningApp) -> None:
    scraped, client = Scraped(app), app.client()
    app.set_policy({"fixed": 3})
    client.completions.create(model="tiny", prompt="one two", max_tokens=4)
    settled(app, scraped)
    exported_before = {metric: scraped.total(metric) for metric in POLICY}
    finished_before = scraped.total(defined.REQUESTS, outcome="finished")
    answered_before = scraped.count(defined.TIME_TO_FIRST_TOKEN)
    told_before = told_to_the_policy(app)
    usages = []
    for turn in range(3):
        answer = client.completions.create(
            # The model is random and always the same: of this answer some drafts are kept.
            model="tiny",
            prompt="one two one two",
            max_tokens=60 + turn,
            temperature=0,
            n=2,
        )
        assert answer.usage is not None
        usages.append(answer.usage)
    settled(app, scraped)

    exported = {metric: scraped.total(metric) - exported_before[metric] for metric in POLICY}
    told = told_to_the_policy(app)
    assert exported == {metric: told[metric] - told_before[metric] for metric in POLICY}
    assert exported[defined.GENERATION_TOKENS] == sum(u.completion_tokens for u in usages)
    details = [u.completion_tokens_details for u in usages]
    accepted = sum((d and d.accepted_prediction_tokens) or 0 for d in details)
    assert exported[defined.NUM_ACCEPTED_TOKENS] == accepted > 0
    tokens = exported[defined.NUM_ACCEPTED_TOKENS] + exported[defined.ROUNDS]
    assert tokens == exported[defined.GENERATION_TOKENS]
    by_position = [
        scraped.total(defined.NUM_ACCEPTED_TOKENS_PER_POS, position=str(i)) for i in range(16)
    ]
    assert sum(by_position) == scraped.total(defined.NUM_ACCEPTED_TOKENS)
    assert scraped.total(defined.REQUESTS, outcome="finished") == finished_before + len(usages)
    assert scraped.count(defined.TIME_TO_FIRST_TOKEN) == answered_before + len(usages)


def test_prometheus_finds_the_application_and_records(app: RunningApp, tmp_path: Path) -> None:
    program = find_program("prometheus")
    if program is None:
        pytest.skip("no Prometheus: `make observe` gets Debian's")
    port = free_port()
    write_folder(tmp_path, Observed(app.url))
    with subprocess.Popen(command(program, tmp_path, "127.0.0.1", port)) as prometheus:
        try:
            app.set_policy({"fixed": 3})

            def ask(query: str) -> list[dict[str, Any]]:
                try:
                    answer = httpx.get(
                        f"http://127.0.0.1:{port}/api/v1/query", params={"query": query}
                    ).json()
                except httpx.HTTPError:
                    return []
                found: list[dict[str, Any]] = answer.get("data", {}).get("result", [])
                return found

            def has_all() -> bool:
                app.client().completions.create(
                    model="tiny", prompt="one two one two", max_tokens=60, temperature=0
                )
                return all(ask(rule.name) for rule in RECORDED)

            eventually(has_all, "what is worked out is there")
            settled(app, Scraped(app))
            steps = f"max({defined.STEPS.series}) == {app.engine()['steps']}"
            eventually(lambda: bool(ask(steps)), "Prometheus has the engine's own number")
            (version,) = ask(defined.TABLE_VERSION.series)
            assert int(version["value"][1]) == app.version_in_force()
            assert {"application", "deployment", "replica"} <= version["metric"].keys()
            assert not any(label.startswith("otel_") for label in version["metric"])
            assert ask('ALERTS{alertstate="firing"}') == []
        finally:
            prometheus.terminate()
