"""Alert rules in Grafana's form, made from the rules that Prometheus gets too.

A rule of Prometheus fires for each series that its expression gives. In Grafana that is a query, a
1 for each of its series, and a threshold below that; no series is no alert.
"""

import hashlib
from typing import Any, Final

from cluster.dashboard.dashboard import TITLE
from cluster.metrics.rules import ALERTS, AlertRule

RULE_UID_PREFIX: Final = "paceline-alert-"
"""Of every rule made here, and of no other."""
_GROUP: Final = TITLE
_LOOKS_BACK_S: Final = 600
_ARITHMETIC: Final = "__expr__"
"""Grafana's own, as if it were a data source."""
_THERE: Final = "is_number($series) || is_nan($series) || is_inf($series)"
_ABOVE_ZERO: Final = {"conditions": [{"evaluator": {"type": "gt", "params": [0]}}]}


def alert_rule_bodies(
    folder_uid: str, datasource_uid: str, organization: int
) -> list[dict[str, Any]]:
    """All rules, as Grafana's provisioning API takes them."""
    return [_body(rule, folder_uid, datasource_uid, organization) for rule in ALERTS]


def alert_rules_file(folder: str, datasource_uid: str) -> dict[str, Any]:
    """All rules, as Grafana reads them from a file at its start."""
    only_api = ("orgID", "folderUID", "ruleGroup")
    bodies = alert_rule_bodies("", datasource_uid, 1)
    rules = [{k: v for k, v in body.items() if k not in only_api} for body in bodies]
    group = {"orgId": 1, "name": _GROUP, "folder": folder, "interval": "1m", "rules": rules}
    return {"apiVersion": 1, "groups": [group]}


def rule_uid(name: str) -> str:
    return f"{RULE_UID_PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _body(
    rule: AlertRule, folder_uid: str, datasource_uid: str, organization: int
) -> dict[str, Any]:
    return {
        "uid": rule_uid(rule.name),
        "title": rule.name,
        "orgID": organization,
        "folderUID": folder_uid,
        "ruleGroup": _GROUP,
        "condition": "fires",
        "data": [
            _query("series", datasource_uid, _ask(rule, datasource_uid)),
            _query("there", _ARITHMETIC, _compute("math", _THERE)),
            _query("fires", _ARITHMETIC, _compute("threshold", "there") | _ABOVE_ZERO),
        ],
        "for": rule.for_,
        "noDataState": "OK",
        "execErrState": "Error",
        "labels": {"severity": rule.severity},
        "annotations": {"summary": rule.summary, "description": rule.description},
    }


def _ask(rule: AlertRule, datasource_uid: str) -> dict[str, Any]:
    return {
        "datasource": {"type": "prometheus", "uid": datasource_uid},
        "expr": rule.expression,
        "instant": True,
        "range": False,
    }


def _compute(kind: str, expression: str) -> dict[str, Any]:
    return {
        "datasource": {"type": _ARITHMETIC, "uid": _ARITHMETIC},
        "type": kind,
        "expression": expression,
    }


def _query(ref_id: str, datasource_uid: str, model: dict[str, Any]) -> dict[str, Any]:
    return {
        "refId": ref_id,
        "datasourceUid": datasource_uid,
        "queryType": "",
        "relativeTimeRange": {"from": _LOOKS_BACK_S, "to": 0},
        "model": {"refId": ref_id} | model,
    }
