"""What is to be done in a Grafana, from what is wanted and what was found there. Pure.

Everything made has a uid that does not depend on what is there, and every step of a plan stands for
itself: a run that breaks off is made good by the next.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from cluster.dashboard.alerts import RULE_UID_PREFIX, alert_rule_bodies
from cluster.dashboard.dashboard import TITLE, UID, dashboard
from cluster.dashboard.grafana import Grafana
from cluster.dashboard.names import Names, uid_of
from cluster.metrics.prometheus import SCRAPE_INTERVAL
from engine.errors import ConfigError
from policy.quoting import shown

_MESSAGE: Final = "paceline dashboards apply"
_FIRST_ORGANIZATION: Final = 1


class Outcome(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Step:
    outcome: Outcome
    """Once `act` has been done."""
    what: str
    act: Callable[[Grafana], None] | None = None
    """None where nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Found:
    """What there is, as Grafana tells it."""

    folders: list[dict[str, Any]]
    datasources: list[dict[str, Any]]
    dashboard: dict[str, Any] | None
    alert_rules: list[dict[str, Any]]

    @classmethod
    def read(cls, grafana: Grafana) -> "Found":
        """Raises ConfigError; nothing is changed."""
        return cls(
            grafana.folders(), grafana.datasources(), grafana.dashboard(UID), grafana.alert_rules()
        )


def plan_apply(names: Names, found: Found) -> list[Step]:
    """In the order in which things need each other. Raises ConfigError."""
    folder_uid, folder = _folder(names, found)
    datasource_uid, datasource = _datasource(names, found)
    written = _dashboard(dashboard((names.datasource, datasource_uid)), folder_uid, found)
    return [folder, datasource, written, *_alert_rules(folder_uid, datasource_uid, found)]


def plan_delete(found: Found) -> list[Step]:
    """Alert rules and dashboard. The folder may hold more, and the data source serve others."""
    steps = [
        Step(
            Outcome.DELETED,
            f"alert rule {shown(rule.get('title'))}",
            partial(Grafana.delete_alert_rule, uid=rule["uid"]),
        )
        for rule in found.alert_rules
        if rule["uid"].startswith(RULE_UID_PREFIX)
    ]
    if found.dashboard is not None:
        steps.append(_deletes_dashboard())
    return steps


def plan_delete_folder(names: Names, found: Found, held: list[dict[str, Any]]) -> list[Step]:
    """`found` and `held` (what is in the folder): after the rest was deleted."""
    uid = uid_of(names.folder)
    ours = any(folder["uid"] == uid for folder in found.folders)
    if not ours or held or any(rule.get("folderUID") == uid for rule in found.alert_rules):
        return []
    return [
        Step(
            Outcome.DELETED,
            f"folder {shown(names.folder)}",
            partial(Grafana.delete_folder, uid=uid),
        )
    ]


def _folder(names: Names, found: Found) -> tuple[str, Step]:
    uid = uid_of(names.folder)
    what = f"folder {shown(names.folder)}"
    there = [row["uid"] for row in found.folders if row["uid"] == uid] or [
        row["uid"] for row in found.folders if row.get("title") == names.folder
    ]
    if there:
        return there[0], Step(Outcome.UNCHANGED, what)
    act = partial(Grafana.create_folder, uid=uid, title=names.folder)
    return uid, Step(Outcome.CREATED, what, act)


def _datasource(names: Names, found: Found) -> tuple[str, Step]:
    uid = uid_of(names.datasource)
    what = f"data source {shown(names.datasource)}"
    there = [row for row in found.datasources if row.get("name") == names.datasource] or [
        row for row in found.datasources if row["uid"] == uid
    ]
    if there:
        source = there[0]
        if source.get("type") != "prometheus":
            raise ConfigError(
                f"--datasource: {shown(names.datasource)} is of type "
                f"{shown(source.get('type'))}, wanted prometheus"
            )
        same = source.get("url") == names.prometheus_url
        told = what if same else f"{what}, whose address is another"
        return source["uid"], Step(Outcome.UNCHANGED, told)
    body = {
        "name": names.datasource,
        "uid": uid,
        "type": "prometheus",
        "access": "proxy",
        "url": names.prometheus_url,
        "jsonData": {"httpMethod": "POST", "timeInterval": SCRAPE_INTERVAL},
    }
    act = partial(Grafana.create_datasource, body=body)
    return uid, Step(Outcome.CREATED, f"{what} at {names.prometheus_url}", act)


def _dashboard(wanted: dict[str, Any], folder_uid: str, found: Found) -> Step:
    what = f"dashboard {shown(TITLE)}"
    body = {"folderUid": folder_uid, "overwrite": False, "message": _MESSAGE}
    if found.dashboard is None:
        body["dashboard"] = wanted | {"id": None}
        return Step(Outcome.CREATED, what, partial(Grafana.write_dashboard, body=body))
    there = found.dashboard["dashboard"]
    if has(there, wanted) and found.dashboard["meta"].get("folderUid") == folder_uid:
        return Step(Outcome.UNCHANGED, what)
    # With the version that was read: who writes in between is not overwritten.
    body["dashboard"] = wanted | {"id": None, "version": there.get("version")}
    return Step(Outcome.UPDATED, what, partial(Grafana.write_dashboard, body=body))


def _deletes_dashboard() -> Step:
    act = partial(Grafana.delete_dashboard, uid=UID)
    return Step(Outcome.DELETED, f"dashboard {shown(TITLE)}", act)


def _alert_rules(folder_uid: str, datasource_uid: str, found: Found) -> Iterator[Step]:
    bodies = alert_rule_bodies(folder_uid, datasource_uid, _organization(found))
    there = {rule["uid"]: rule for rule in found.alert_rules}
    for body in bodies:
        what = f"alert rule {shown(body['title'])}"
        if body["uid"] not in there:
            yield Step(Outcome.CREATED, what, partial(Grafana.create_alert_rule, rule=body))
        elif has(there[body["uid"]], body):
            yield Step(Outcome.UNCHANGED, what)
        else:
            yield Step(Outcome.UPDATED, what, partial(Grafana.update_alert_rule, rule=body))
    for uid in sorted(there.keys() - {body["uid"] for body in bodies}):
        if uid.startswith(RULE_UID_PREFIX):  # of an earlier version of Paceline
            what = f"alert rule {shown(there[uid].get('title'))}"
            yield Step(Outcome.DELETED, what, partial(Grafana.delete_alert_rule, uid=uid))


def _organization(found: Found) -> int:
    """Grafana wants it in a rule, and takes the token's all the same."""
    told = [
        row.get(key)
        for rows, key in ((found.datasources, "orgId"), (found.alert_rules, "orgID"))
        for row in rows
    ]
    return next((number for number in told if isinstance(number, int)), _FIRST_ORGANIZATION)


def has(there: object, wanted: object) -> bool:
    """Whether all that is wanted is there; Grafana adds what it has defaults for.

    >>> has({"a": [1, {"b": 2, "c": 3}], "id": 7}, {"a": [1, {"b": 2}]})
    True
    """
    match wanted:
        case dict():
            return isinstance(there, dict) and all(
                key in there and has(there[key], value) for key, value in wanted.items()
            )
        case list():
            return (
                isinstance(there, list)
                and len(there) == len(wanted)
                and all(map(has, there, wanted))
            )
    return there == wanted
