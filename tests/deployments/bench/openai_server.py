"""A small server that speaks OpenAI's chat API as a script says, and Paceline's policy routes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAIL, CUT, HANG, NO_TEXT = "please fail", "please break off", "please hang", "please say nothing"


@dataclass
class Seen:
    bodies: list[dict[str, Any]] = field(default_factory=list)
    policies: list[Any] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)
    """A client went away from an answer that hangs."""
    hangs: threading.Event = field(default_factory=threading.Event)
    together: threading.Barrier | None = None
    """Nobody is answered before so many have asked."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Connections beyond it are asked to come again, seconds later."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen = Seen()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._json(200, {"data": [{"id": "scripted"}]})
        else:
            self._json(200, self._described())

    def do_PUT(self) -> None:
        self.server.seen.policies.append(self._body()["policy"])
        self._json(200, self._described())

    def do_POST(self) -> None:
        body = self._body()
        seen = self.server.seen
        seen.bodies.append(body)
        if seen.together is not None:
            seen.together.wait(30)
        text = body["messages"][0]["content"]
        if text == FAIL:
            self._json(503, {"error": {"message": "the engine\nis full"}})
            return
        self.send_response(200)
        self.end_headers()
        if text == HANG:
            self._hang()
            return
        told = ["", "a"] if text == NO_TEXT else [text[:1], "b"]
        if text != NO_TEXT:
            for content in told:
                self._event({"choices": [{"delta": {"content": content}, "finish_reason": None}]})
        if text == CUT:
            return
        self._event({"choices": [{"delta": {}, "finish_reason": "length"}]})
        self._event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _hang(self) -> None:
        self._event({"choices": [{"delta": {"content": "a"}, "finish_reason": None}]})
        self.server.seen.hangs.set()
        self.connection.settimeout(30)
        if self.connection.recv(1) == b"":  # the client has closed
            self.server.seen.gone.set()

    def _described(self) -> dict[str, Any]:
        return {"table": {"version": 3, "rungs": [[4, 5], [8, 1]]}, "replicas": []}

    def _event(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return body

    def _json(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def scripted_server() -> Iterator[tuple[str, Seen]]:
    """Its URL, ending in /v1, and what it sees."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", server.seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
