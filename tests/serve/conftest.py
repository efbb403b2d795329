"""One real Ray, Serve and replica for all tests here, with a tiny random model in float32."""

import random
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from deployments.config import parse_config
from deployments.launcher import Launcher
from deployments.models.cache import default_home
from tests.tiny import save_tiny_llama
from tests.tiny_tokenizer import byte_level_tokenizer

with warnings.catch_warnings():
    # Ray Serve declares its models in a way that pydantic deprecates; once imported, it is silent.
    warnings.simplefilter("ignore", DeprecationWarning)
    import ray.serve  # noqa: F401

WAIT_S = 60.0
START_S = 240.0
"""On a machine where nothing is compiled yet, and that is busy with other tests."""
PORTS = (20_000, 32_000)
CONTEXT_TOKENS = 4096
"""Long enough for an answer that nobody waits for to its end."""

THIRD_PARTY_WARNINGS = (
    # Ray Serve's own models, its sockets and its pipes.
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for warning in THIRD_PARTY_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


def free_port() -> int:
    """Not one of those that the system hands out to whoever asks for any: Ray's own processes would
    take it before the proxy does."""
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; fail when it does not in a long time."""
    deadline = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def is_ready(url: str) -> bool:
    """Whether a replica answers there."""
    try:
        return httpx.get(f"{url}/health", timeout=WAIT_S).status_code == 200
    except httpx.HTTPError:
        return False


@dataclass(frozen=True)
class RunningApp:
    """An application, asked over HTTP alone."""

    url: str

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=WAIT_S
        )

    def get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = httpx.get(f"{self.url}{path}", timeout=WAIT_S).json()
        return answer

    def set_policy(self, policy: Any) -> dict[str, Any]:
        answer = httpx.put(f"{self.url}/policy", json={"policy": policy}, timeout=WAIT_S)
        described: dict[str, Any] = answer.raise_for_status().json()
        return described

    def engine(self) -> dict[str, Any]:
        status: dict[str, Any] = self.get("/health")["engine"]
        return status

    def is_idle(self) -> bool:
        engine = self.engine()
        has_no_request = engine["num_running"] == engine["num_waiting"] == 0
        return has_no_request and bool(engine["num_free_blocks"] == engine["num_blocks"])

    def version_in_force(self) -> int:
        """As the engine itself says."""
        version: int = self.engine()["table_version"]
        return version


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = byte_level_tokenizer()
    save_tiny_llama(folder, vocab_size=len(tokenizer), max_position_embeddings=CONTEXT_TOKENS)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_settings(tiny_model: Path) -> dict[str, Any]:
    """A configuration, but for its port."""
    return {
        "model": str(tiny_model),
        "policy": {"fixed": 2},
        "engine": {
            "dtype": "float32",
            "device": "cpu",
            "kv_cache_mb": 16,
            "num_threads": 1,
            "max_num_seqs": 8,
        },
        "replicas": {"num_cpus": 0.5, "graceful_shutdown_timeout_s": 5.0},
    }


@contextmanager
def a_new_home(folder: Path) -> Iterator[None]:
    """For processes started within: nothing is known there but compiled forwards."""
    (default_home() / "compiled").mkdir(parents=True, exist_ok=True)
    (folder / "compiled").symlink_to(default_home() / "compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_HOME", str(folder))
        yield


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the application keeps what it measures."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def app(tiny_settings: dict[str, Any], home: Path) -> Iterator[RunningApp]:
    port = free_port()
    config = parse_config({**tiny_settings, "policy": "adaptive", "server": {"port": port}}, "test")
    config = config.with_models_found()
    launcher = Launcher(config, address=None)
    try:
        with a_new_home(home):
            launcher.start_ray()
        launcher.start_serve()
        launcher.deploy()
        eventually(lambda: launcher.state().ready, "the application is ready")
        yield RunningApp(f"http://127.0.0.1:{port}")
        launcher.drain()
    finally:
        launcher.stop()
