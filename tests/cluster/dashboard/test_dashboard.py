"""The rendered dashboard and rules: valid for Grafana, and about what is exported."""

import copy
import json
import re
from itertools import combinations
from typing import Any

import pytest

from cluster.dashboard.alerts import alert_rule_bodies, alert_rules_file, expanded
from cluster.dashboard.dashboard import ROWS, UID, dashboard
from cluster.dashboard.panel import Panel
from cluster.metrics.definitions import METRICS
from cluster.metrics.metric import REPLICA_LABELS, Kind
from cluster.metrics.rules import ALERTS, RECORDINGS
from tests.cluster.dashboard.grafana_schema import dashboard_problems, rule_problems
from tests.cluster.dashboard.promql import problems

PANELS = [panel for row in ROWS for panel in row.panels]


def test_rows_are_those_that_were_asked_for() -> None:
    titles = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert titles == ["Overview", "Latency", "Speculation", "Policy", "Memory", "Replicas"]


@pytest.mark.parametrize("datasource", [None, ("Paceline", "paceline-1")])
def test_the_dashboard_is_as_grafanas_schema_has_it(datasource: tuple[str, str] | None) -> None:
    assert dashboard_problems(dashboard(datasource)) == []
    assert json.loads(json.dumps(dashboard(datasource))) == dashboard(datasource)


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        (("titel",), "x", ".titel: unknown"),
        (("graphTooltip",), 9, "9 is none of"),
        (("refresh",), 5, "5 is no"),
        (("panels", 1, "gridPos", "w"), "6", "'6' is no"),
        (("panels", 1, "options", "graphMode"), "aera", "'aera' is none of"),
        (("panels", 1, "links", 0, "urll"), "/", "urll: unknown"),
        (("panels", 1, "targets", 0, "format"), "lines", "'lines' is none of"),
        (("panels", 7, "fieldConfig", "defaults", "custom", "showPoints"), "no", "is none of"),
        (("templating", "list", 1, "refresh"), 7, "7 is none of"),
    ],
)
def test_the_schema_check_finds_what_is_wrong(
    path: tuple[Any, ...], value: Any, found: str
) -> None:
    broken = copy.deepcopy(dashboard())
    place: Any = broken
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert [problem for problem in dashboard_problems(broken) if found in problem]


def test_ids_and_titles_are_unique_and_panels_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    assert len({panel.title for panel in PANELS}) == len(PANELS)
    places = [panel["gridPos"] for panel in panels]
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_links_lead_from_panel_to_panel_with_time_and_variables() -> None:
    titles = {panel["id"]: panel["title"] for panel in dashboard()["panels"]}
    links = [link for panel in dashboard()["panels"] for link in panel.get("links", ())]
    assert links
    for link in links:
        found = re.fullmatch(rf"/d/{UID}/{UID}\?viewPanel=(\d+)&(.*)", link["url"])
        assert found is not None
        assert titles[int(found[1])] == link["title"]
        assert found[2] == "${__url_time_range}&${__all_variables}"
    assert {link["title"] for link in links} > {"Queue time", "Acceptance by position"}


def test_every_metric_is_shown_and_told_in_the_words_of_its_definition() -> None:
    shown = {metric for panel in PANELS for metric in panel.metrics}
    assert [metric.name for metric in METRICS if metric not in shown] == []
    described = {panel["id"]: panel.get("description", "") for panel in dashboard()["panels"]}
    for panel in PANELS:
        for metric in panel.metrics:
            assert f"`{metric.series}`: {metric.help}" in described[panel.id]


def test_units_are_grafanas_for_what_the_definitions_say() -> None:
    units = {p["title"]: p["fieldConfig"]["defaults"] for p in dashboard()["panels"] if p["id"] > 9}
    assert units["Time to first token"]["unit"] == "s"
    assert units["Requests by outcome"]["unit"] == "reqps"
    assert (
        units["Acceptance by position"] | {"unit": "percentunit", "max": 1}
        == (units["Acceptance by position"])
    )
    assert units["KV blocks"]["custom"]["axisLabel"] == "blocks"
    assert units["Generated tokens"]["unit"] == "suffix: tokens/s"
    assert units["Estimated speed-up"]["unit"] == "suffix: ×"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_queries_ask_for_what_is_exported(panel: Panel) -> None:
    for query in panel.queries:
        assert problems(query.expression.text) == []
        assert all(metric.series in query.expression.text for metric in query.expression.metrics)
        labels = set(re.findall(r"{{(\w+)}}", query.legend))
        assert labels <= set(re.findall(r"by \(([\w, ]+)\)", query.expression.text)), query.legend


def test_a_number_is_asked_for_as_it_is_now() -> None:
    """Of a range the last sample would stay for as long as the range, after all has ended."""
    numbers = [panel for panel in dashboard()["panels"] if panel["type"] == "stat"]
    assert numbers
    for panel in numbers:
        assert [(t["instant"], t["range"]) for t in panel["targets"]] == [(True, False)]


def test_variables_offer_the_labels_of_a_gauge_that_every_replica_has() -> None:
    source, *variables = dashboard()["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert [variable["name"] for variable in variables] == list(REPLICA_LABELS)
    gauges = {metric.series for metric in METRICS if metric.kind is Kind.GAUGE}
    for variable in variables:
        query = variable["query"]["query"]
        found = re.fullmatch(r"label_values\((\w+)({.*})?, (\w+)\)", query)
        assert found is not None
        assert (found[1] in gauges, found[3]) == (True, variable["name"])
        assert problems(f"{found[1]}{found[2] or ''}") == []
        assert variable["datasource"]["uid"] == "${datasource}"


def test_every_panel_and_query_takes_the_chosen_data_source() -> None:
    for panel in dashboard()["panels"]:
        for asked in [panel, *panel.get("targets", ())]:
            if asked["type" if asked is panel else "refId"] != "row":
                assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_the_data_source_of_apply_is_the_one_it_opens_with() -> None:
    current = dashboard(("Mine", "uid-1"))["templating"]["list"][0]["current"]
    assert (current["text"], current["value"]) == ("Mine", "uid-1")


def test_alert_rules_are_as_grafanas_schema_has_them() -> None:
    bodies = alert_rule_bodies("folder", "source", 1)
    assert [body["title"] for body in bodies] == [alert.name for alert in ALERTS]
    assert [rule_problems(body) for body in bodies] == [[] for _ in bodies]
    assert len({body["uid"] for body in bodies}) == len(bodies)
    assert all(len(body["uid"]) <= 40 for body in bodies)


def test_alert_rules_are_prometheus_own_but_need_nothing_recorded() -> None:
    for alert, body in zip(ALERTS, alert_rule_bodies("folder", "source", 1), strict=True):
        query, there, fires = body["data"]
        assert problems(query["model"]["expr"]) == []
        assert not any(recording.name in query["model"]["expr"] for recording in RECORDINGS)
        assert query["datasourceUid"] == "source"
        assert there["model"]["expression"].count("$series") == 3
        assert (fires["model"]["expression"], body["condition"]) == ("there", "fires")
        assert (body["for"], body["labels"]) == (alert.lasting, {"severity": alert.severity})
        assert body["noDataState"] == "OK"
        assert "$value " not in "".join(body["annotations"].values())
    assert any(recording.name in alert.expr for recording in RECORDINGS for alert in ALERTS)


def test_recordings_are_expanded_by_their_whole_name() -> None:
    one, other = RECORDINGS[0], RECORDINGS[1]
    expr = f"{one.name} > 2 * {other.name} and {one.name}x and x:{one.name}"
    assert expanded(expr) == (f"({one.expr}) > 2 * ({other.expr}) and {one.name}x and x:{one.name}")


def test_the_file_of_alert_rules_has_what_a_file_has() -> None:
    (group,) = alert_rules_file("Team", "source")["groups"]
    assert (group["folder"], group["interval"]) == ("Team", "1m")
    assert [rule["title"] for rule in group["rules"]] == [alert.name for alert in ALERTS]
    assert not any({"orgID", "folderUID", "ruleGroup"} & rule.keys() for rule in group["rules"])
