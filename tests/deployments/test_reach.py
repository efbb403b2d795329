"""Who answers at an address."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from deployments import reach
from deployments.config import ServerSection
from deployments.reach import http_answers, require_ray
from engine.errors import ConfigError


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_nobody_listens_at_is_one_line(closed_port: int, scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{closed_port}"
    with pytest.raises(ConfigError, match=f"nobody answers at '{address}': Connection refused"):
        require_ray(address)


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "host:99999", "[::1", ""])
def test_what_is_no_address_is_one_line(address: str) -> None:
    with pytest.raises(ConfigError, match=r"--address must be host:port of a Ray cluster"):
        require_ray(address)


def test_a_listener_that_is_no_ray_is_given_up(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "RAY_ANSWER_S", 0.5)
    with pytest.raises(ConfigError, match=f"no Ray cluster answers at '127.0.0.1:{silent_port}'"):
        require_ray(f"127.0.0.1:{silent_port}")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_an_endpoint_answers_whatever_it_says(host: str) -> None:
    class Unavailable(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Unavailable) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert http_answers(ServerSection(host=host, port=server.server_port))
        thread.join()


def test_an_endpoint_that_is_gone_or_silent_does_not_answer(
    closed_port: int, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "HTTP_ANSWER_S", 0.2)
    assert not http_answers(ServerSection(port=closed_port))
    assert not http_answers(ServerSection(port=silent_port))
