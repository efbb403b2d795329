"""The policy while requests run: set by hand, and through the death of its actor."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.serve.conftest import RunningApp, eventually

PROMPTS = ("The quick brown fox", "One two three,", "Paceline drafts", "- first\n- second")
MAX_TOKENS = 48


def texts_of(app: RunningApp) -> list[str]:
    """One greedy, streamed answer for each prompt, one after the other."""
    client = app.client()
    return [
        "".join(
            chunk.choices[0].text
            for chunk in client.completions.create(
                model="tiny", prompt=prompt, max_tokens=MAX_TOKENS, temperature=0, stream=True
            )
        )
        for prompt in PROMPTS
    ]


@contextmanager
def load(app: RunningApp, num_clients: int = 4) -> Iterator[list["Future[int]"]]:
    """Clients that ask again and again; each gives its number of rounds, or the first fault."""
    expected = texts_of(app)
    over = threading.Event()

    def client() -> int:
        num_rounds = 0
        while not over.is_set():
            assert texts_of(app) == expected
            num_rounds += 1
        return num_rounds

    with ThreadPoolExecutor(num_clients) as pool:
        clients = [pool.submit(client) for _ in range(num_clients)]
        try:
            yield clients
        finally:
            over.set()


def comes_into_force(app: RunningApp, version: int) -> None:
    """Return once the engine says so, and the policy actor knows."""
    eventually(lambda: app.version_in_force() == version, f"version {version} is in force")
    eventually(
        lambda: app.get("/policy")["replicas"][0]["version_in_force"] == version, "it is reported"
    )


def test_a_replica_measures_itself_once_and_a_table_follows(app: RunningApp, home: Path) -> None:
    app.set_policy("adaptive")
    eventually(lambda: app.get("/policy")["table"]["source"] == "measured", "a table is measured")
    reasons = [entry["why"] for entry in app.get("/policy")["history"]]
    assert any("measured cost" in why for why in reasons)
    (calibration,) = [
        path for path in (home / "calibration").glob("*.json") if "learned" not in path.name
    ]
    assert json.loads(calibration.read_text())["calibration"]["cells"]
    told = app.get("/policy/explain?batch_size=3")
    assert "tokens a round" in told["text"]
    assert told["draft_len"] in range(9)


def test_what_was_learned_survives_the_policy_actor(app: RunningApp, home: Path) -> None:
    app.set_policy("adaptive")
    eventually(lambda: app.get("/policy")["table"]["source"] == "measured", "a table is measured")
    with load(app) as clients:
        eventually(
            lambda: bool(list((home / "calibration").glob("*.learned.json"))),
            "a replica keeps what was learned",
        )
        before = app.get("/policy")
        os.kill(before["pid"], signal.SIGKILL)

        def is_back() -> bool:
            described = app.get("/policy")
            reachable = described["policy_actor"]["reachable"]
            return bool(reachable) and described.get("pid") != before["pid"]

        eventually(is_back, "there is another actor")
        eventually(
            lambda: app.get("/policy")["table"]["version"] >= before["table"]["version"],
            "the table is recovered",
        )
        described = app.get("/policy")
        assert described["table"]["mode"] == "adaptive"
        assert described["table"]["source"] == "measured"
        assert "tokens a round" in app.get("/policy/explain?batch_size=1")["text"]
    for client in clients:
        client.result()


def test_a_policy_set_under_load_comes_into_force_and_loses_no_request(app: RunningApp) -> None:
    with load(app) as clients:
        for policy in ({"fixed": 4}, "off", {"table": {"2": 5, "8": 1}}):
            comes_into_force(app, app.set_policy(policy)["table"]["version"])
    for client in clients:
        client.result()


def test_what_replicas_do_is_told_while_they_do_it(app: RunningApp) -> None:
    """All that the console and `paceline status` show, through Serve's proxy."""
    app.set_policy("adaptive")
    with load(app) as clients:

        def is_at_work() -> bool:
            (replica,) = app.get("/policy")["replicas"]
            return bool(replica["decoding"] and replica["kv_use"] and replica["tokens_per_s"])

        eventually(is_at_work, "a replica reports its load")
        page = httpx.get(f"{app.url}/console")
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
    for client in clients:
        client.result()
    eventually(
        lambda: app.get("/policy")["replicas"][0]["tokens_per_s"] == 0, "and then that it rests"
    )
    (kind,) = app.get("/policy/explain")["kinds"]
    assert kind["version"] == app.get("/policy")["table"]["version"]
    assert all(gain["speedup"] > 0 for gain in kind["by_batch_size"])


def test_a_bad_policy_is_refused(app: RunningApp) -> None:
    policies: tuple[object, ...] = ("on", {"fixed": 9}, {"table": {}}, None)
    for bad in policies:
        answer = httpx.put(f"{app.url}/policy", json={"policy": bad})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "policy"


def test_the_policy_actor_is_killed_under_load(app: RunningApp) -> None:
    by_hand = app.set_policy({"fixed": 3})
    version = by_hand["table"]["version"]
    eventually(lambda: app.version_in_force() == version, "the table is in force")
    with load(app) as clients:
        os.kill(by_hand["pid"], signal.SIGKILL)

        def is_missed() -> bool:
            """Or another one is there already."""
            described = app.get("/policy")
            if described["policy_actor"]["reachable"]:
                return bool(described["pid"] != by_hand["pid"])
            assert described["table"]["version"] == version, "a replica answers in its place"
            return True

        eventually(is_missed, "it is missed")

        def is_back() -> bool:
            described = app.get("/policy")
            return described["policy_actor"]["reachable"] and bool(described["replicas"])

        eventually(is_back, "another actor knows the replica")
        assert app.version_in_force() == version, "the table stayed in force"
        eventually(
            lambda: app.get("/policy")["table"]["version"] == version, "the table is recovered"
        )
        described = app.get("/policy")
        assert described["pid"] != by_hand["pid"]
        assert described["table"]["source"] == "hand"
        newer = app.set_policy("off")["table"]["version"]
        assert newer > version
        eventually(lambda: app.version_in_force() == newer, "the next table is in force")
    for client in clients:
        client.result()
