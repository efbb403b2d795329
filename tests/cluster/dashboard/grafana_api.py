"""What a Grafana keeps, and what it answers to each documented call.

Folders, data sources, dashboards with their versions, and provisioned alert rules.
"""

import json
from collections.abc import Callable
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from tests.cluster.dashboard.grafana_schema import dashboard_problems, rule_problems

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


class Kept:
    def __init__(self) -> None:
        self.folders: dict[str, dict[str, Any]] = {}
        self.datasources: dict[str, dict[str, Any]] = {}
        self.dashboards: dict[str, dict[str, Any]] = {}
        """By uid: `dashboard` and `folderUid`."""
        self.rules: dict[str, dict[str, Any]] = {}
        self.violations: list[str] = []

    def state(self) -> str:
        """Everything, to be compared; without the numbers that count."""
        dashboards = {
            uid: [there["folderUid"], _without(there["dashboard"], "id", "version")]
            for uid, there in self.dashboards.items()
        }
        rules = {uid: _without(rule, "id") for uid, rule in self.rules.items()}
        kept = [self.folders, self.datasources, dashboards, rules]
        return json.dumps(kept, sort_keys=True)

    def violated(self, what: str) -> Answer:
        self.violations.append(what)
        return 400, {"message": f"violation: {what}"}

    def invalid(self, body: Any, schema: dict[str, Any]) -> Answer | None:
        """A refusal; None where the body is as the documentation has it."""
        errors = jsonschema.Draft202012Validator(schema).iter_errors(body)
        told = sorted(f"{error.json_path}: {error.message}" for error in errors)
        return self.violated("; ".join(told)) if told else None


def _without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: kept for key, kept in value.items() if key not in keys}


def _list_folders(kept: Kept, asked: dict[str, str]) -> Answer:
    limit, page = int(asked.get("limit", 1000)), int(asked.get("page", 1))
    return 200, list(kept.folders.values())[limit * (page - 1) : limit * page]


def _create_folder(kept: Kept, body: dict[str, Any]) -> Answer:
    if refused := kept.invalid(body, FOLDER):
        return refused
    uid = body.get("uid", f"made-{len(kept.folders)}")
    if uid in kept.folders or body["title"] in [f["title"] for f in kept.folders.values()]:
        return 409, {"message": "a folder with the same name already exists in this location"}
    folder = {"id": len(kept.folders) + 1, "uid": uid, "title": body["title"], "version": 1}
    kept.folders[uid] = folder
    return 200, folder


def _delete_folder(kept: Kept, uid: str) -> Answer:
    if kept.folders.pop(uid, None) is None:
        return 404, {"message": "folder not found"}
    kept.dashboards = {k: d for k, d in kept.dashboards.items() if d["folderUid"] != uid}
    kept.rules = {k: rule for k, rule in kept.rules.items() if rule["folderUID"] != uid}
    return 200, {"message": "Folder deleted", "id": 1}


def _search(kept: Kept, asked: dict[str, str]) -> Answer:
    return 200, [
        {"uid": uid, "title": there["dashboard"]["title"], "type": "dash-db"}
        for uid, there in kept.dashboards.items()
        if there["folderUid"] == asked["folderUIDs"]
    ]


def _create_datasource(kept: Kept, body: dict[str, Any]) -> Answer:
    if refused := kept.invalid(body, DATASOURCE):
        return refused
    uid = body.get("uid", f"made-{len(kept.datasources)}")
    if uid in kept.datasources or body["name"] in [d["name"] for d in kept.datasources.values()]:
        return 409, {"message": "data source with the same name already exists"}
    there = {"id": len(kept.datasources) + 1, "orgId": ORGANIZATION, "readOnly": False}
    kept.datasources[uid] = there | body | {"uid": uid}
    return 200, {"datasource": kept.datasources[uid], "message": "Datasource added"}


def _get_dashboard(kept: Kept, uid: str) -> Answer:
    there = kept.dashboards.get(uid)
    if there is None:
        return 404, {"message": "Dashboard not found"}
    return 200, {"dashboard": there["dashboard"], "meta": {"folderUid": there["folderUid"]}}


def _write_dashboard(kept: Kept, body: dict[str, Any]) -> Answer:
    if refused := kept.invalid(body, WRITE_DASHBOARD):
        return refused
    written = body["dashboard"]
    uid, folder = written.get("uid") or "", body.get("folderUid", "")
    problems = dashboard_problems({k: v for k, v in written.items() if k != "id"})
    if kept.invalid(uid, _UID) or problems:
        return kept.violated(f"dashboard: {problems or uid}")
    if folder and folder not in kept.folders:
        return 400, {"message": "folder not found"}
    there = kept.dashboards.get(uid)
    if there is None and any(
        other["folderUid"] == folder and other["dashboard"]["title"] == written["title"]
        for other in kept.dashboards.values()
    ):
        return 412, {"message": "A dashboard with the same name exists", "status": "name-exists"}
    version = there["dashboard"]["version"] if there else 0
    if there and not body.get("overwrite") and written.get("version") != version:
        message = "The dashboard has been changed by someone else"
        return 412, {"message": message, "status": "version-mismatch"}
    number = there["dashboard"]["id"] if there else len(kept.dashboards) + 1
    saved = written | {"id": number, "version": version + 1}
    kept.dashboards[uid] = {"dashboard": saved, "folderUid": folder}
    return 200, {"id": number, "uid": uid, "status": "success", "version": version + 1}


def _delete_dashboard(kept: Kept, uid: str) -> Answer:
    if kept.dashboards.pop(uid, None) is None:
        return 404, {"message": "Dashboard not found"}
    return 200, {"title": "", "message": "Dashboard deleted", "id": 1}


def _kept_rule(kept: Kept, uid: str, body: dict[str, Any]) -> Answer | None:
    """A refusal; None where the rule may be kept."""
    if refused := kept.invalid(body, ALERT_RULE):
        return refused
    if problems := rule_problems(body):
        return kept.violated(f"alert rule: {problems}")
    if body.get("uid", uid) != uid:
        return kept.violated(f"the rule at {uid} says that it is {body['uid']}")
    refs = [query["refId"] for query in body["data"]]
    if body["condition"] not in refs or len(set(refs)) != len(refs):
        return kept.violated(f"condition {body['condition']!r} of {refs}")
    sources = {query["datasourceUid"] for query in body["data"]}
    if body["folderUID"] not in kept.folders or sources - {*kept.datasources, "__expr__"}:
        return 400, {"message": "folder or data source does not exist"}
    place = ("folderUID", "ruleGroup", "title")
    if any(
        all(other[key] == body[key] for key in place)
        for other_uid, other in kept.rules.items()
        if other_uid != uid
    ):
        return 400, {"message": "a conflicting alert rule is found: title must be unique"}
    return None


def _create_rule(kept: Kept, body: dict[str, Any]) -> Answer:
    uid = body.get("uid") or f"made-{len(kept.rules)}"
    if refused := _kept_rule(kept, uid, body):
        return refused
    if uid in kept.rules:
        return 409, {"message": "a conflicting alert rule is found: rule UID already exists"}
    number = len(kept.rules) + 1
    # As Grafana answers: with what it has defaults for, and the organization of the token.
    kept.rules[uid] = {"id": number, "isPaused": False, "provenance": "api"} | body
    kept.rules[uid] |= {"orgID": ORGANIZATION, "updated": "2026-01-01T00:00:00Z"}
    return 201, kept.rules[uid]


def _update_rule(kept: Kept, uid: str, body: dict[str, Any]) -> Answer:
    if uid not in kept.rules:
        return 404, {"message": "alert rule not found"}
    if refused := _kept_rule(kept, uid, body):
        return refused
    kept.rules[uid] |= body | {"orgID": ORGANIZATION}
    return 200, kept.rules[uid]


def _delete_rule(kept: Kept, uid: str) -> Answer:
    kept.rules.pop(uid, None)
    return 204, None


_RULES = "/v1/provisioning/alert-rules"
ROUTES: tuple[tuple[str, str, set[str], Callable[..., Answer]], ...] = (
    ("GET", "/folders", {"limit", "page"}, _list_folders),
    ("POST", "/folders", set(), _create_folder),
    ("DELETE", "/folders/([^/]+)", set(), _delete_folder),
    ("GET", "/search", {"folderUIDs", "query", "type", "limit"}, _search),
    ("GET", "/datasources", set(), lambda kept: (200, list(kept.datasources.values()))),
    ("POST", "/datasources", set(), _create_datasource),
    ("GET", "/dashboards/uid/([^/]+)", set(), _get_dashboard),
    ("POST", "/dashboards/db", set(), _write_dashboard),
    ("DELETE", "/dashboards/uid/([^/]+)", set(), _delete_dashboard),
    ("GET", _RULES, set(), lambda kept: (200, list(kept.rules.values()))),
    ("POST", _RULES, set(), _create_rule),
    ("PUT", f"{_RULES}/([^/]+)", set(), _update_rule),
    ("DELETE", f"{_RULES}/([^/]+)", set(), _delete_rule),
)
