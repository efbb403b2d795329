"""Bringing dashboard and rules to a Grafana: once, again, after a break, and away."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.dashboard.alerts import RULE_UID_PREFIX
from cluster.dashboard.dashboard import UID
from cluster.dashboard.grafana import Grafana
from cluster.dashboard.names import Names, uid_of
from cluster.dashboard.plan import (
    Found,
    Outcome,
    Step,
    has,
    plan_apply,
    plan_delete,
    plan_delete_folder,
)
from cluster.metrics.rules import ALERTS
from engine.errors import ConfigError
from tests.cluster.dashboard.grafana_stub import TOKEN, GrafanaStub, serving

FOLDER_UID = uid_of("Paceline")


@pytest.fixture
def stub() -> Iterator[GrafanaStub]:
    with serving(GrafanaStub()) as stub:
        yield stub


def apply(stub: GrafanaStub, names: Names | None = None) -> list[tuple[Outcome, str]]:
    grafana = Grafana(stub.url, TOKEN)
    told = []
    for step in plan_apply(names or Names(), Found.read(grafana)):
        if step.act is not None:
            step.act(grafana)
        told.append((step.outcome, step.what))
    return told


def delete(stub: GrafanaStub, names: Names | None = None) -> list[str]:
    grafana, names = Grafana(stub.url, TOKEN), names or Names()
    told = _carried_out(plan_delete(Found.read(grafana)), grafana)
    held = grafana.holds(uid_of(names.folder))
    return told + _carried_out(plan_delete_folder(names, Found.read(grafana), held), grafana)


def _carried_out(steps: list[Step], grafana: Grafana) -> list[str]:
    for step in steps:
        assert step.act is not None
        step.act(grafana)
    return [step.what for step in steps]


def outcomes(told: list[tuple[Outcome, str]]) -> set[Outcome]:
    return {outcome for outcome, _ in told}


def test_everything_is_made_where_nothing_is(stub: GrafanaStub) -> None:
    told = apply(stub)
    assert outcomes(told) == {Outcome.CREATED}
    kept = stub.kept
    assert [folder["title"] for folder in kept.folders.values()] == ["Paceline"]
    (source,) = kept.datasources.values()
    assert (source["name"], source["type"], source["url"]) == (
        "Paceline",
        "prometheus",
        "http://127.0.0.1:9090",
    )
    assert source["jsonData"]["timeInterval"] == "5s"
    assert kept.dashboards[UID]["folderUid"] == FOLDER_UID
    chosen = kept.dashboards[UID]["dashboard"]["templating"]["list"][0]["current"]
    assert chosen["value"] == source["uid"]
    assert {rule["title"] for rule in kept.rules.values()} == {alert.name for alert in ALERTS}
    assert {rule["data"][0]["datasourceUid"] for rule in kept.rules.values()} == {source["uid"]}


def test_a_second_time_nothing_is_written(stub: GrafanaStub) -> None:
    apply(stub)
    before, writes = stub.kept.state(), len(stub.writes())
    assert outcomes(apply(stub)) == {Outcome.UNCHANGED}
    assert (stub.kept.state(), len(stub.writes())) == (before, writes)


def test_what_grafana_adds_to_what_it_keeps_is_no_change(stub: GrafanaStub) -> None:
    apply(stub)
    stub.kept.dashboards[UID]["dashboard"] |= {"preload": False, "fiscalYearStartMonth": 0}
    for rule in stub.kept.rules.values():
        rule |= {"keep_firing_for": "0s", "notification_settings": None}
    assert outcomes(apply(stub)) == {Outcome.UNCHANGED}


def _title(stub: GrafanaStub) -> None:
    stub.kept.dashboards[UID]["dashboard"]["title"] = "Mine"


def _panel(stub: GrafanaStub) -> None:
    stub.kept.dashboards[UID]["dashboard"]["panels"].pop()


def _moved(stub: GrafanaStub) -> None:
    stub.kept.dashboards[UID]["folderUid"] = ""


def _rule(stub: GrafanaStub) -> None:
    next(iter(stub.kept.rules.values()))["for"] = "9m"


def _stale_rule(stub: GrafanaStub) -> None:
    uid = f"{RULE_UID_PREFIX}of-earlier"
    rule = next(iter(stub.kept.rules.values()))
    stub.kept.rules[uid] = rule | {"uid": uid, "title": "OfEarlier"}


def _no_rule(stub: GrafanaStub) -> None:
    stub.kept.rules.popitem()


@pytest.mark.parametrize("change", [_title, _panel, _moved, _rule, _stale_rule, _no_rule])
def test_what_was_changed_is_made_good_and_nothing_else_written(
    stub: GrafanaStub, change: Callable[[GrafanaStub], None]
) -> None:
    apply(stub)
    before, writes = stub.kept.state(), len(stub.writes())
    change(stub)
    told = apply(stub)
    assert stub.kept.state() == before
    assert len(stub.writes()) == writes + 1
    assert len([outcome for outcome, _ in told if outcome is not Outcome.UNCHANGED]) == 1


def test_a_run_that_breaks_off_anywhere_is_made_good_by_the_next(stub: GrafanaStub) -> None:
    apply(stub)
    wanted, number = stub.kept.state(), len(stub.writes())
    assert number == 3 + len(ALERTS)
    for breaks_at in range(number):
        with serving(GrafanaStub()) as broken:
            broken.before = _fails_at_write(broken, breaks_at)
            with pytest.raises(ConfigError, match="answered 503"):
                apply(broken)
            broken.before = lambda method, path: None
            told = apply(broken)
            assert broken.kept.state() == wanted
            created = [outcome for outcome, _ in told if outcome is Outcome.CREATED]
            assert len(created) == number - breaks_at
            assert outcomes(apply(broken)) == {Outcome.UNCHANGED}


def _fails_at_write(stub: GrafanaStub, index: int) -> Callable[[str, str], Any]:
    def before(method: str, path: str) -> Any:
        return (503, {"message": "no more"}) if len(stub.writes()) == index + 1 else None

    return before


def test_a_write_that_was_done_but_not_answered_is_found_by_the_next(stub: GrafanaStub) -> None:
    apply(stub)
    wanted = stub.kept.state()
    with serving(GrafanaStub()) as cut:
        grafana = Grafana(cut.url, TOKEN)
        first, *_ = plan_apply(Names(), Found.read(grafana))
        assert first.act is not None
        first.act(grafana)
        assert apply(cut)[0] == (Outcome.UNCHANGED, "folder 'Paceline'")
        assert cut.kept.state() == wanted


def test_a_folder_of_that_title_is_taken_as_it_is(stub: GrafanaStub) -> None:
    stub.kept.folders["theirs"] = {"id": 1, "uid": "theirs", "title": "Team"}
    told = apply(stub, Names(folder="Team"))
    assert (Outcome.UNCHANGED, "folder 'Team'") in told
    assert stub.kept.dashboards[UID]["folderUid"] == "theirs"
    assert {rule["folderUID"] for rule in stub.kept.rules.values()} == {"theirs"}


def test_a_folder_beyond_the_first_thousand_is_found(stub: GrafanaStub) -> None:
    stub.kept.folders = {
        f"f{i}": {"id": i, "uid": f"f{i}", "title": f"Folder {i}"} for i in range(1001)
    }
    assert (Outcome.UNCHANGED, "folder 'Folder 1000'") in apply(stub, Names(folder="Folder 1000"))


def test_a_folder_of_ours_may_be_renamed(stub: GrafanaStub) -> None:
    apply(stub)
    stub.kept.folders[FOLDER_UID]["title"] = "Serving"
    assert outcomes(apply(stub)) == {Outcome.UNCHANGED}


def test_a_data_source_of_that_name_is_taken_as_it_is(stub: GrafanaStub) -> None:
    source = {"uid": "p1", "name": "Main", "type": "prometheus", "url": "http://p", "orgId": 7}
    stub.kept.datasources["p1"] = dict(source)
    told = apply(stub, Names(datasource="Main"))
    assert (Outcome.UNCHANGED, "data source 'Main', whose address is another") in told
    assert stub.kept.datasources == {"p1": source}
    assert {rule["data"][0]["datasourceUid"] for rule in stub.kept.rules.values()} == {"p1"}


def test_a_data_source_of_another_type_is_refused_before_anything_is_written(
    stub: GrafanaStub,
) -> None:
    stub.kept.datasources["l1"] = {"uid": "l1", "name": "Logs", "type": "loki", "orgId": 7}
    with pytest.raises(ConfigError, match="--datasource: 'Logs' is of type 'loki'"):
        apply(stub, Names(datasource="Logs"))
    assert stub.writes() == []


def test_who_writes_between_reading_and_writing_is_not_overwritten(stub: GrafanaStub) -> None:
    apply(stub)
    _title(stub)
    grafana = Grafana(stub.url, TOKEN)
    steps = plan_apply(Names(), Found.read(grafana))
    stub.kept.dashboards[UID]["dashboard"]["version"] += 1
    (writes,) = [step for step in steps if step.outcome is Outcome.UPDATED]
    assert writes.act is not None
    with pytest.raises(ConfigError, match=r"answered 412.*changed by someone else"):
        writes.act(grafana)
    assert stub.kept.dashboards[UID]["dashboard"]["title"] == "Mine"
    assert apply(stub)
    assert stub.kept.dashboards[UID]["dashboard"]["title"] == "Paceline"


def test_a_dashboard_of_that_name_by_somebody_else_is_left_alone(stub: GrafanaStub) -> None:
    apply(stub)
    stub.kept.dashboards["theirs"] = stub.kept.dashboards.pop(UID)
    with pytest.raises(ConfigError, match=r"answered 412.*same name"):
        apply(stub)
    assert [*stub.kept.dashboards] == ["theirs"]


def test_delete_takes_away_what_was_made_but_the_data_source(stub: GrafanaStub) -> None:
    apply(stub)
    told = delete(stub)
    kept = stub.kept
    assert (kept.folders, kept.dashboards, kept.rules) == ({}, {}, {})
    assert [source["name"] for source in kept.datasources.values()] == ["Paceline"]
    assert "folder 'Paceline'" in told
    assert len(told) == len(ALERTS) + 2
    assert delete(stub) == []


def test_delete_leaves_what_others_have_in_the_folder(stub: GrafanaStub) -> None:
    apply(stub)
    stub.kept.dashboards["theirs"] = {"dashboard": {"title": "x"}, "folderUid": FOLDER_UID}
    assert "folder 'Paceline'" not in delete(stub)
    assert [*stub.kept.dashboards] == ["theirs"]
    del stub.kept.dashboards["theirs"]
    stub.kept.rules["theirs"] = {"uid": "theirs", "folderUID": FOLDER_UID}
    assert delete(stub) == []
    assert [*stub.kept.folders] == [FOLDER_UID]


def test_delete_leaves_a_folder_that_was_there_before(stub: GrafanaStub) -> None:
    stub.kept.folders["theirs"] = {"id": 1, "uid": "theirs", "title": "Team"}
    apply(stub, Names(folder="Team"))
    delete(stub, Names(folder="Team"))
    assert [*stub.kept.folders] == ["theirs"]
    assert stub.kept.dashboards == {}


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": [1]}, {"a": [1, 2]}),
        ([], {}),
        ({}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        (None, "x"),
    ],
)
def test_what_differs_is_not_there(there: object, wanted: object) -> None:
    assert not has(there, wanted)


@pytest.mark.parametrize("name", ["Paceline", "Überwachung", "监控", "a/b?c", "x" * 190])
def test_uids_suit_grafana_whatever_the_name(name: str) -> None:
    assert len(uid_of(name)) <= 40
    assert uid_of(name).isascii()
    assert uid_of(name).replace("-", "").isalnum()
