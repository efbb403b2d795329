"""A Grafana that knows the calls documented for its HTTP API, and holds every request against them.

Folders, data sources, dashboards with their versions and provisioned alert rules are kept. What the
documentation does not allow (a path, a field, a type) is refused, and noted in `violations`: no
test passes with one.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import jsonschema

from tests.cluster.dashboard.grafana_schema import dashboard_problems, rule_problems

TOKEN = "glsa_secret-of-the-stub"
ORGANIZATION = 7
Answer = tuple[int, Any]

_UID = {"type": "string", "minLength": 1, "maxLength": 40, "pattern": "^[a-zA-Z0-9_-]+$"}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
        "additionalProperties": False,
    }


FOLDER = _object({"title": {"type": "string", "minLength": 1}}, uid=_UID, parentUid=_UID)
DATASOURCE = _object(
    {
        "name": {"type": "string", "minLength": 1, "maxLength": 190},
        "type": {"type": "string"},
        "access": {"enum": ["proxy", "direct"]},
    },
    uid=_UID,
    url={"type": "string"},
    basicAuth={"type": "boolean"},
    isDefault={"type": "boolean"},
    jsonData={"type": "object"},
)
WRITE_DASHBOARD = _object(
    {"dashboard": {"type": "object"}},
    folderUid=_UID,
    overwrite={"type": "boolean"},
    message={"type": "string"},
)
QUERY = _object(
    {"refId": {"type": "string"}, "datasourceUid": {"type": "string"}, "model": {"type": "object"}},
    queryType={"type": "string"},
    relativeTimeRange=_object({"from": {"type": "integer"}, "to": {"type": "integer"}}),
)
ALERT_RULE = _object(
    {
        "condition": {"type": "string"},
        "data": {"type": "array", "items": QUERY, "minItems": 1},
        "execErrState": {"enum": ["OK", "Alerting", "Error"]},
        "folderUID": _UID,
        "for": {"type": "string", "pattern": "^([0-9]+(y|w|d|h|m|s|ms))+$"},
        "noDataState": {"enum": ["Alerting", "NoData", "OK"]},
        "orgID": {"type": "integer"},
        "ruleGroup": {"type": "string", "minLength": 1, "maxLength": 190},
        "title": {"type": "string", "minLength": 1, "maxLength": 190},
    },
    uid=_UID,
    annotations={"type": "object", "additionalProperties": {"type": "string"}},
    labels={"type": "object", "additionalProperties": {"type": "string"}},
    isPaused={"type": "boolean"},
)


class GrafanaStub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, prefix: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.prefix = prefix
        self.folders: dict[str, dict[str, Any]] = {}
        self.datasources: dict[str, dict[str, Any]] = {}
        self.dashboards: dict[str, dict[str, Any]] = {}
        """By uid: `dashboard` and `folderUid`."""
        self.rules: dict[str, dict[str, Any]] = {}
        self.violations: list[str] = []
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

    def state(self) -> str:
        """Everything that is kept, to be compared."""
        return json.dumps([self.folders, self.datasources, self.dashboards, self.rules])

    def violated(self, what: str) -> Answer:
        self.violations.append(what)
        return 400, {"message": f"violation: {what}"}

    def invalid(self, body: Any, schema: dict[str, Any]) -> Answer | None:
        errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(body), key=str)
        return self.violated(f"{errors[0].json_path}: {errors[0].message}") if errors else None


@contextmanager
def serving(stub: GrafanaStub) -> Iterator[GrafanaStub]:
    with stub:
        thread = threading.Thread(target=stub.serve_forever)
        thread.start()
        try:
            yield stub
        finally:
            stub.released.set()
            stub.shutdown()
            thread.join()
    assert stub.violations == []


class _Handler(BaseHTTPRequestHandler):
    server: GrafanaStub

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
            return stub.violated(f"{self.path} is not below {stub.prefix}/api")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Invalid API key", "messageId": "api-key.invalid"}
        body = None
        if method in ("POST", "PUT"):
            if self.headers.get("Content-Type") != "application/json":
                return stub.violated(f"{method} {path} without Content-Type: application/json")
            body = json.loads(sent)
        elif sent:
            return stub.violated(f"{method} {path} with a body")
        asked = {key: values[0] for key, values in parse_qs(query).items()}
        for wanted, pattern, allowed, handle in _ROUTES:
            found = re.fullmatch(pattern, path)
            if wanted == method and found is not None:
                if asked.keys() - allowed:
                    return stub.violated(f"{method} {path} knows no {asked.keys() - allowed}")
                given = [unquote(group) for group in found.groups()]
                return handle(
                    stub, *given, *([asked] if allowed else []), *([body] if body else [])
                )
        return stub.violated(f"{method} {path} is not documented")

    def _send(self, status: int, body: Any) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if body is not None:
            self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _list_folders(stub: GrafanaStub, asked: dict[str, str]) -> Answer:
    limit, page = int(asked.get("limit", 1000)), int(asked.get("page", 1))
    return 200, list(stub.folders.values())[limit * (page - 1) : limit * page]


def _create_folder(stub: GrafanaStub, body: dict[str, Any]) -> Answer:
    if refused := stub.invalid(body, FOLDER):
        return refused
    uid = body.get("uid", f"made-{len(stub.folders)}")
    if uid in stub.folders or body["title"] in [f["title"] for f in stub.folders.values()]:
        return 409, {"message": "a folder with the same name already exists in this location"}
    folder = {"id": len(stub.folders) + 1, "uid": uid, "title": body["title"], "version": 1}
    stub.folders[uid] = folder
    return 200, folder


def _delete_folder(stub: GrafanaStub, uid: str) -> Answer:
    if stub.folders.pop(uid, None) is None:
        return 404, {"message": "folder not found"}
    stub.dashboards = {k: d for k, d in stub.dashboards.items() if d["folderUid"] != uid}
    stub.rules = {k: rule for k, rule in stub.rules.items() if rule["folderUID"] != uid}
    return 200, {"message": "Folder deleted", "id": 1}


def _search(stub: GrafanaStub, asked: dict[str, str]) -> Answer:
    return 200, [
        {"uid": uid, "title": kept["dashboard"]["title"], "type": "dash-db"}
        for uid, kept in stub.dashboards.items()
        if kept["folderUid"] == asked["folderUIDs"]
    ]


def _create_datasource(stub: GrafanaStub, body: dict[str, Any]) -> Answer:
    if refused := stub.invalid(body, DATASOURCE):
        return refused
    uid = body.get("uid", f"made-{len(stub.datasources)}")
    if uid in stub.datasources or body["name"] in [d["name"] for d in stub.datasources.values()]:
        return 409, {"message": "data source with the same name already exists"}
    there = {"id": len(stub.datasources) + 1, "orgId": ORGANIZATION, "readOnly": False}
    stub.datasources[uid] = there | body | {"uid": uid}
    return 200, {"datasource": stub.datasources[uid], "message": "Datasource added"}


def _get_dashboard(stub: GrafanaStub, uid: str) -> Answer:
    kept = stub.dashboards.get(uid)
    if kept is None:
        return 404, {"message": "Dashboard not found"}
    return 200, {"dashboard": kept["dashboard"], "meta": {"folderUid": kept["folderUid"]}}


def _write_dashboard(stub: GrafanaStub, body: dict[str, Any]) -> Answer:
    if refused := stub.invalid(body, WRITE_DASHBOARD):
        return refused
    written = body["dashboard"]
    uid, folder = written.get("uid") or "", body.get("folderUid", "")
    problems = dashboard_problems({k: v for k, v in written.items() if k != "id"})
    if stub.invalid(uid, _UID) or problems:
        return stub.violated(f"dashboard: {problems or uid}")
    if folder and folder not in stub.folders:
        return 400, {"message": "folder not found"}
    kept = stub.dashboards.get(uid)
    if kept is None and any(
        other["folderUid"] == folder and other["dashboard"]["title"] == written["title"]
        for other in stub.dashboards.values()
    ):
        return 412, {"message": "A dashboard with the same name exists", "status": "name-exists"}
    version = kept["dashboard"]["version"] if kept else 0
    if kept and not body.get("overwrite") and written.get("version") != version:
        message = "The dashboard has been changed by someone else"
        return 412, {"message": message, "status": "version-mismatch"}
    number = kept["dashboard"]["id"] if kept else len(stub.dashboards) + 1
    saved = written | {"id": number, "version": version + 1}
    stub.dashboards[uid] = {"dashboard": saved, "folderUid": folder}
    return 200, {"id": number, "uid": uid, "status": "success", "version": version + 1}


def _delete_dashboard(stub: GrafanaStub, uid: str) -> Answer:
    if stub.dashboards.pop(uid, None) is None:
        return 404, {"message": "Dashboard not found"}
    return 200, {"title": "", "message": "Dashboard deleted", "id": 1}


def _kept_rule(stub: GrafanaStub, uid: str, body: dict[str, Any]) -> Answer | None:
    """A refusal; None where the rule may be kept."""
    if refused := stub.invalid(body, ALERT_RULE):
        return refused
    if problems := rule_problems(body):
        return stub.violated(f"alert rule: {problems}")
    if body.get("uid", uid) != uid:
        return stub.violated(f"the rule at {uid} says that it is {body['uid']}")
    refs = [query["refId"] for query in body["data"]]
    if body["condition"] not in refs or len(set(refs)) != len(refs):
        return stub.violated(f"condition {body['condition']!r} of {refs}")
    sources = {query["datasourceUid"] for query in body["data"]}
    if body["folderUID"] not in stub.folders or sources - {*stub.datasources, "__expr__"}:
        return 400, {"message": "folder or data source does not exist"}
    place = ("folderUID", "ruleGroup", "title")
    if any(
        all(other[key] == body[key] for key in place)
        for other_uid, other in stub.rules.items()
        if other_uid != uid
    ):
        return 400, {"message": "a conflicting alert rule is found: title must be unique"}
    return None


def _create_rule(stub: GrafanaStub, body: dict[str, Any]) -> Answer:
    uid = body.get("uid") or f"made-{len(stub.rules)}"
    if refused := _kept_rule(stub, uid, body):
        return refused
    if uid in stub.rules:
        return 409, {"message": "a conflicting alert rule is found: rule UID already exists"}
    number = len(stub.rules) + 1
    # As Grafana answers: with what it has defaults for, and the organization of the token.
    stub.rules[uid] = {"id": number, "isPaused": False, "provenance": "api"} | body
    stub.rules[uid] |= {"orgID": ORGANIZATION, "updated": "2026-01-01T00:00:00Z"}
    return 201, stub.rules[uid]


def _update_rule(stub: GrafanaStub, uid: str, body: dict[str, Any]) -> Answer:
    if uid not in stub.rules:
        return 404, {"message": "alert rule not found"}
    if refused := _kept_rule(stub, uid, body):
        return refused
    stub.rules[uid] |= body
    return 200, stub.rules[uid]


def _delete_rule(stub: GrafanaStub, uid: str) -> Answer:
    stub.rules.pop(uid, None)
    return 204, None


_RULES = "/v1/provisioning/alert-rules"
_ROUTES: tuple[tuple[str, str, set[str], Callable[..., Answer]], ...] = (
    ("GET", "/folders", {"limit", "page"}, _list_folders),
    ("POST", "/folders", set(), _create_folder),
    ("DELETE", "/folders/([^/]+)", set(), _delete_folder),
    ("GET", "/search", {"folderUIDs", "query", "type", "limit"}, _search),
    ("GET", "/datasources", set(), lambda stub: (200, list(stub.datasources.values()))),
    ("POST", "/datasources", set(), _create_datasource),
    ("GET", "/dashboards/uid/([^/]+)", set(), _get_dashboard),
    ("POST", "/dashboards/db", set(), _write_dashboard),
    ("DELETE", "/dashboards/uid/([^/]+)", set(), _delete_dashboard),
    ("GET", _RULES, set(), lambda stub: (200, list(stub.rules.values()))),
    ("POST", _RULES, set(), _create_rule),
    ("PUT", f"{_RULES}/([^/]+)", set(), _update_rule),
    ("DELETE", f"{_RULES}/([^/]+)", set(), _delete_rule),
)
