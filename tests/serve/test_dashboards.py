"""Every query of every panel, asked of a real Prometheus that watches a real application."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.dashboard.alerts import alert_rule_bodies
from cluster.dashboard.dashboard import dashboard
from cluster.metrics.metric import REPLICA_LABELS
from cluster.metrics.prometheus import Observed, command, find_program, write_folder
from tests.serve.conftest import WAIT_S, RunningApp, eventually, free_port

NUM_CLIENTS = 3
Samples = list[dict[str, Any]]


@contextmanager
def load(app: RunningApp) -> Iterator[None]:
    """Some short answers after each other, so that there is always something that decodes."""
    stop = threading.Event()

    def ask() -> None:
        client = app.client()
        while not stop.is_set():
            client.completions.create(model="tiny", prompt="one two one two", max_tokens=200)

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        asking = [pool.submit(ask) for _ in range(NUM_CLIENTS)]
        try:
            yield
        finally:
            stop.set()
            for client in asking:
                client.result()


@contextmanager
def prometheus_of(app: RunningApp, folder: Path) -> Iterator[Callable[[str], Samples]]:
    """Asks it for a query's samples of this moment."""
    program = find_program("prometheus")
    if program is None:
        pytest.skip("no Prometheus: `make observe` gets Debian's")
    port = free_port()
    write_folder(folder, Observed(app.url))

    def ask(query: str) -> Samples:
        url = f"http://127.0.0.1:{port}/api/v1/query"
        answer = httpx.get(url, params={"query": query}, timeout=WAIT_S).json()
        assert answer["status"] == "success", (query, answer)
        samples: Samples = answer["data"]["result"]
        return samples

    with subprocess.Popen(command(program, folder, "127.0.0.1", port)) as prometheus:
        try:
            ready = f"http://127.0.0.1:{port}/-/ready"
            eventually(lambda: _answers(ready), "Prometheus is ready")
            yield ask
        finally:
            prometheus.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=WAIT_S).status_code == 200
    except httpx.HTTPError:
        return False


def as_grafana_asks(expr: str) -> str:
    """With all replicas chosen."""
    for label in REPLICA_LABELS:
        expr = expr.replace(f"${label}", ".*")
    return expr.replace("$__rate_interval", "1m")


def test_every_query_of_every_panel_has_data(app: RunningApp, tmp_path: Path) -> None:
    queries = {
        (panel["title"], target["expr"]): as_grafana_asks(target["expr"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    }
    missing = dict(queries)
    app.set_policy({"fixed": 3})
    with prometheus_of(app, tmp_path) as ask, load(app):

        def all_have_data() -> bool:
            # Once is enough: some are there only while something decodes.
            for key, query in list(missing.items()):
                if any(not isnan(float(sample["value"][1])) for sample in ask(query)):
                    del missing[key]
            return not missing

        eventually(all_have_data, f"data for all of {len(queries)} queries")
        (share,) = ask(queries[next(key for key in queries if key[0] == "Acceptance")])
        assert 0 <= float(share["value"][1]) <= 1
        for rule in alert_rule_bodies("folder", "source", 1):
            assert ask(rule["data"][0]["model"]["expr"]) == [], rule["title"]
