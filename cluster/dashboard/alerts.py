"""Alert rules in Grafana's form, made from the rules that Prometheus gets too.

A rule of Prometheus fires for each series that its expression gives. In Grafana that is a query, a
1 for each of its series, and a threshold below that; no series is no alert.

The expressions stand for themselves here: a Prometheus without our rule file records nothing.
"""

import hashlib
import re
from typing import Any, Final

from cluster.metrics.rules import ALERTS, RECORDINGS, Alert

RULE_UID_PREFIX: Final = "paceline-alert-"
"""Of every rule made here, and of no other."""
GROUP: Final = "Paceline"
_LOOKS_BACK_S: Final = 600
_ARITHMETIC: Final = "__expr__"
"""Grafana's own, as if it were a data source."""
_THERE: Final = "is_number($series) || is_nan($series) || is_inf($series)"
_ABOVE_ZERO: Final = {"conditions": [{"evaluator": {"type": "gt", "params": [0]}}]}


def alert_rule_bodies(
    folder_uid: str, datasource_uid: str, organization: int
) -> list[dict[str, Any]]:
    """All rules, as Grafana's provisioning API takes them."""
    in_grafana = {"orgID": organization, "folderUID": folder_uid, "ruleGroup": GROUP}
    return [_rule(alert, datasource_uid) | in_grafana for alert in ALERTS]


def alert_rules_file(folder: str, datasource_uid: str) -> dict[str, Any]:
    """All rules, as Grafana reads them from a file when it starts."""
    rules = [_rule(alert, datasource_uid) for alert in ALERTS]
    group = {"orgId": 1, "name": GROUP, "folder": folder, "interval": "1m", "rules": rules}
    return {"apiVersion": 1, "groups": [group]}


def expanded(expr: str) -> str:
    """`expr` with what is recorded in place of the recordings' names."""
    for recording in RECORDINGS:
        whole_name = rf"(?<![\w:]){re.escape(recording.name)}(?![\w:])"
        expr = re.sub(whole_name, f"({recording.expr})", expr)
    return expr


def rule_uid(name: str) -> str:
    return f"{RULE_UID_PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _rule(alert: Alert, datasource_uid: str) -> dict[str, Any]:
    return {
        "uid": rule_uid(alert.name),
        "title": alert.name,
        "condition": "fires",
        "data": [
            _query("series", datasource_uid, _ask(alert, datasource_uid)),
            _query("there", _ARITHMETIC, _compute("math", _THERE)),
            _query("fires", _ARITHMETIC, _compute("threshold", "there") | _ABOVE_ZERO),
        ],
        "for": alert.lasting,
        "noDataState": "OK",
        "execErrState": "Error",
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": _template(alert.summary),
            "description": _template(alert.description),
        },
    }


def _template(text: str) -> str:
    """Grafana's `$value` is a text of all queries' values: the one of the series is meant."""
    return re.sub(r"\$value\b", "$values.series.Value", text)


def _ask(alert: Alert, datasource_uid: str) -> dict[str, Any]:
    return {
        "datasource": {"type": "prometheus", "uid": datasource_uid},
        "expr": expanded(alert.expr),
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
