"""A replica of two ranks through real Ray Serve: the same texts, and a rank that is killed under
load leaves nobody without an answer and nothing behind."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.serve.conftest import START_S, eventually, is_ready
from tests.serve.serve_process import ServeProcess
from tests.serve.test_policy_live import MAX_TOKENS, PROMPTS

RANK = "ray::RankActor"
NUM_CLIENTS = 4
KILLS = int(os.environ.get("PACELINE_KILLS", "1"))


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, tiny_settings: dict[str, Any], home: Path
) -> Iterator[ServeProcess]:
    settings = {**tiny_settings, "engine": {**tiny_settings["engine"], "tp_size": 2}}
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        process = ServeProcess.start(folder, settings)
    try:
        yield process
    finally:
        process.kill()


def ranks_of(served: ServeProcess) -> list[int]:
    found = []
    for pid in served.survivors():
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if title.startswith(RANK):
            found.append(pid)
    return found


def texts_of(url: str) -> list[str]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    return [
        client.completions.create(model="tiny", prompt=prompt, max_tokens=MAX_TOKENS, temperature=0)
        .choices[0]
        .text
        for prompt in PROMPTS
    ]


def test_two_ranks_under_serve(served: ServeProcess, app: Any) -> None:
    """`app` has the same model in one process."""
    eventually(lambda: is_ready(served.url) or served.process.poll() is not None, "it is ready")
    assert served.process.poll() is None, served.log.read_text()
    expected = texts_of(app.url)
    assert texts_of(served.url) == expected
    errors: Counter[str] = Counter()
    for _ in range(KILLS):
        errors += kill_a_rank_under_load(served, expected)
    print(f"answers other than 200, in {KILLS} kills: {dict(errors)}")
    # The step failed, the replica was ended, or nobody is ready: all told in the API's words.
    assert set(errors) <= {"503", "no connection"}
    assert served.log.read_text().count("Traceback") == 0
    assert len(ranks_of(served)) == 1, "ranks were left behind"


def kill_a_rank_under_load(served: ServeProcess, expected: list[str]) -> Counter[str]:
    """Returns once every client had an error, and two rounds of answers behind it: the errors."""

    def client(_: int) -> list[str]:
        errors: list[str] = []
        answers = 0
        while answers < 2:
            try:
                assert texts_of(served.url) == expected
                answers += bool(errors)
            except openai.APIStatusError as error:
                errors.append(str(error.status_code))
            except openai.APIConnectionError:
                errors.append("no connection")
        return errors

    (rank,) = ranks_of(served)
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        clients = [pool.submit(client, number) for number in range(NUM_CLIENTS)]
        eventually(
            lambda: httpx.get(f"{served.url}/health").json()["engine"]["num_running"] > 0,
            "requests run",
        )
        os.kill(rank, signal.SIGKILL)
        found = Counter(error for done in clients for error in done.result(START_S))
    (another,) = ranks_of(served)
    assert another != rank
    return found
