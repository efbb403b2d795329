"""The dashboard in Grafana's JSON, made from the rows.

Written for the schema of Grafana 11; later ones read it too. Uid, panel ids and order are always
the same, so links into it hold, and what is written twice is equal.
"""

from collections.abc import Iterator
from typing import Any, Final

from cluster.dashboard.panel import Look, Panel, Query, Row
from cluster.dashboard.promql import SHARE
from cluster.dashboard.rows import latency, memory, overview, policy, replicas, speculation
from cluster.metrics import definitions as defined
from cluster.metrics.metric import REPLICA_LABELS

UID: Final = "paceline"
TITLE: Final = "Paceline"
SCHEMA_VERSION: Final = 41
ROWS: Final = (
    overview.ROW,
    latency.ROW,
    speculation.ROW,
    policy.ROW,
    memory.ROW,
    replicas.ROW,
)

_WIDTH: Final = 24
_HEIGHT_OF: Final = {Look.NUMBER: 4}
_HEIGHT: Final = 8
_UNIT_OF: Final = {
    "seconds": "s",
    SHARE: "percentunit",
    "ratio": "suffix: ×",
    "requests/s": "reqps",
}
"""Grafana's own units; of others the number is shown, and the unit at the axis or behind it."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_THERE: Final = defined.KV_BLOCKS.series
"""A series that every replica has from its first second on."""


def dashboard(datasource: tuple[str, str] | None = None) -> dict[str, Any]:
    """The whole dashboard. `datasource`: name and uid of what it opens with; else the default."""
    return {
        "uid": UID,
        "title": TITLE,
        "description": "What Paceline does: requests, speculation and its policy, replicas. "
        "Generated: changes made by hand are overwritten by the next `paceline dashboards apply`.",
        "tags": ["paceline"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels
        "time": {"from": "now-30m", "to": "now"},
        "refresh": "10s",
        "schemaVersion": SCHEMA_VERSION,
        "panels": list(_panels()),
        "templating": {"list": [_datasource(datasource), *_label_variables()]},
        "annotations": {"list": []},
        "links": [],
    }


def panel_path(panel: Panel) -> str:
    """Where a panel is shown alone, with the same replicas and time."""
    return f"/d/{UID}/{UID}?viewPanel={panel.id}&${{__url_time_range}}&${{__all_variables}}"


def _panels() -> Iterator[dict[str, Any]]:
    """Rows from top to bottom; panels from left to right, as many as a line takes."""
    top = 0
    for row in ROWS:
        yield _row(row, top)
        top += 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                left, top = 0, top + height
            height = _HEIGHT_OF.get(panel.look, _HEIGHT)
            yield _panel(panel, {"x": left, "y": top, "w": panel.width, "h": height})
            left += panel.width
        top += height


def _row(row: Row, top: int) -> dict[str, Any]:
    return {
        "type": "row",
        "id": row.id,
        "title": row.title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1},
        "panels": [],
    }


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    helps = [f"`{metric.series}`: {metric.help}" for metric in panel.metrics]
    panels = {other.title: other for row in ROWS for other in row.panels}
    return {
        "type": str(panel.look),
        "id": panel.id,
        "title": panel.title,
        "description": "\n\n".join([panel.says, *helps]),
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [
            _target(panel, query, chr(ord("A") + i)) for i, query in enumerate(panel.queries)
        ],
        "links": [
            {
                "title": title,
                "type": "link",
                "icon": "",
                "tooltip": "",
                "url": panel_path(panels[title]),
                "tags": [],
                "asDropdown": False,
                "targetBlank": False,
                "includeVars": False,
                "keepTime": False,
            }
            for title in panel.leads_to
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _OPTIONS[panel.look],
    }


def _target(panel: Panel, query: Query, ref_id: str) -> dict[str, Any]:
    return {
        "refId": ref_id,
        "datasource": _SOURCE,
        "expr": query.expression.text,
        "legendFormat": query.legend,
        "format": "heatmap" if panel.look is Look.HEATMAP else "time_series",
        # A number is what is so now: of a range, the last sample would stay when nothing follows.
        "range": panel.look is not Look.NUMBER,
        "instant": panel.look is Look.NUMBER,
        "editorMode": "code",
    }


def _field(panel: Panel) -> dict[str, Any]:
    unit = _UNIT_OF.get(panel.unit)
    field: dict[str, Any] = {"unit": unit or "short"}
    if panel.unit == SHARE:
        field |= {"min": 0, "max": 1}
    match panel.look:
        case Look.LINES:
            field["min"] = 0
            field["custom"] = {
                "axisLabel": "" if unit else panel.unit,
                "fillOpacity": 10,
                "showPoints": "never",
            }
        case Look.NUMBER if unit is None:
            field["unit"] = f"suffix: {panel.unit}"
    if any("{{replica}}" in query.legend for query in panel.queries):
        field["links"] = [
            {
                "title": "This replica alone",
                "url": f"/d/{UID}/{UID}?${{__url_time_range}}&${{datasource:queryparam}}"
                "&var-replica=${__field.labels.replica}",
                "targetBlank": False,
            }
        ]
    return field


_OPTIONS: Final[dict[Look, dict[str, Any]]] = {
    Look.LINES: {
        "legend": {
            "showLegend": True,
            "displayMode": "list",
            "placement": "bottom",
            "calcs": [],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    Look.NUMBER: {
        "reduceOptions": {"calcs": ["lastNotNull"], "values": False, "fields": ""},
        "graphMode": "none",
        "colorMode": "value",
        "justifyMode": "auto",
        "textMode": "value",
        "orientation": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    Look.HEATMAP: {
        "calculate": False,
        "yAxis": {"unit": "s", "axisPlacement": "left"},
        "color": {
            "mode": "scheme",
            "scheme": "Blues",
            "steps": 64,
            "reverse": False,
            "exponent": 0.5,
            "fill": "dark-orange",
        },
        "cellGap": 1,
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
    },
}


def _datasource(chosen: tuple[str, str] | None) -> dict[str, Any]:
    variable: dict[str, Any] = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "skipUrlSync": False,
    }
    if chosen is not None:
        name, uid = chosen
        variable["current"] = {"selected": True, "text": name, "value": uid}
    return variable


def _label_variables() -> Iterator[dict[str, Any]]:
    """Each offers what there is among what was chosen before it."""
    before: list[str] = []
    for label in REPLICA_LABELS:
        among = ",".join(before)
        series = f"{_THERE}{{{among}}}" if among else _THERE
        query = f"label_values({series}, {label})"
        yield {
            "type": "query",
            "name": label,
            "label": label.capitalize(),
            "datasource": _SOURCE,
            "query": {"query": query, "refId": f"variable-{label}"},
            "refresh": 2,  # with the time range: replicas come and go
            "sort": 1,
            "regex": "",
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "hide": 0,
            "skipUrlSync": False,
        }
        before.append(f'{label}=~"${label}"')
