"""A Grafana that knows the calls documented for its HTTP API, and holds requests against them.

What the documentation does not allow (a path, a field, a type) is refused, and noted as a
violation: no test passes with one.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.cluster.dashboard.grafana_api import ROUTES, Answer, Kept

TOKEN = "glsa_secret-of-the-stub"


class GrafanaStub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, prefix: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.prefix = prefix
        self.kept = Kept()
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], Answer | bytes | None] = lambda method, path: None
        """Asked first: an answer of its own for a call, or bytes to be sent as they are."""
        self.released = threading.Event()
        """What a call that hangs waits for."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.prefix}"

    def writes(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if call[0] != "GET"]


@contextmanager
def serving(stub: GrafanaStub) -> Iterator[GrafanaStub]:
    with stub:
        thread = threading.Thread(target=stub.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield stub
        finally:
            stub.released.set()
            stub.shutdown()
            thread.join()
    assert stub.kept.violations == []


class _Handler(BaseHTTPRequestHandler):
    server: GrafanaStub
    wbufsize = -1  # head and body in one packet

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, method: str) -> None:
        stub, parts = self.server, urlsplit(self.path)
        path = parts.path.removeprefix(f"{stub.prefix}/api")
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        stub.calls.append((method, path))
        made_up = stub.before(method, path)
        if isinstance(made_up, bytes):
            self.wfile.write(made_up)
            return
        self._send(*(made_up or self._decide(method, path, parts.query, sent)))

    def _decide(self, method: str, path: str, query: str, sent: bytes) -> Answer:
        stub = self.server
        if not self.path.startswith(f"{stub.prefix}/api/"):
            return stub.kept.violated(f"{self.path} is not below {stub.prefix}/api")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Invalid API key", "messageId": "api-key.invalid"}
        body = None
        if method in ("POST", "PUT"):
            if self.headers.get("Content-Type") != "application/json":
                return stub.kept.violated(f"{method} {path} without Content-Type: application/json")
            body = json.loads(sent)
        elif sent:
            return stub.kept.violated(f"{method} {path} with a body")
        asked = {key: values[0] for key, values in parse_qs(query).items()}
        for wanted, pattern, allowed, handle in ROUTES:
            found = re.fullmatch(pattern, path)
            if wanted == method and found is not None:
                if asked.keys() - allowed:
                    return stub.kept.violated(f"{method} {path} knows no {asked.keys() - allowed}")
                given = [unquote(group) for group in found.groups()]
                return handle(
                    stub.kept, *given, *([asked] if allowed else []), *([body] if body else [])
                )
        return stub.kept.violated(f"{method} {path} is not documented")

    def _send(self, status: int, body: Any) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if body is not None:
            self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
