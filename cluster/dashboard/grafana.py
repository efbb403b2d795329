"""Grafana's HTTP API through grafana-api: what is asked of it, and how its refusals read.

Every call answers with JSON or raises ConfigError in one line that tells what was being done. The
token is shown nowhere.

grafana-api 1.0.3 has no calls for alert rules, raises whatever its parser raises for an answer
that is empty or no JSON, and follows redirects, which makes a GET of a POST. All of that ends
here.
"""

from typing import Any, Final
from urllib.parse import quote, urlsplit

import requests
from grafana_api.grafana_api import GrafanaException
from grafana_api.grafana_face import GrafanaFace

from cluster.urls import host_in_url
from engine.errors import ConfigError
from policy.quoting import shown

TIMEOUT_S: Final = 10.0
_PAGE: Final = 1000
_MAX_PAGES: Final = 100
_REASON_CHARACTERS: Final = 300
_RULES: Final = "/v1/provisioning/alert-rules"


class Grafana:
    """One Grafana, in the organization of the token."""

    def __init__(self, url: str, token: str, timeout_s: float = TIMEOUT_S) -> None:
        """Nothing is asked yet. Raises ConfigError where the address can't be one."""
        self.url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        protocol, host, port, prefix = parts_of(self.url, "--url")
        face = GrafanaFace(
            token,
            host=host,
            port=port,
            url_path_prefix=prefix,
            protocol=protocol,
            timeout=timeout_s,
        )
        face.api.s.max_redirects = 0
        self._face = face

    def folders(self) -> list[dict[str, Any]]:
        """All folders at the top level: uid and title."""
        found: list[dict[str, Any]] = []
        for page in range(1, _MAX_PAGES + 1):
            path = f"/folders?limit={_PAGE}&page={page}"
            rows = self._rows("list folders", self._face.api.GET, path)
            found += rows
            if len(rows) < _PAGE:
                break
        return found

    def create_folder(self, uid: str, title: str) -> None:
        self._ask("create the folder", self._face.folder.create_folder, title, uid)

    def holds(self, folder_uid: str) -> list[dict[str, Any]]:
        """Dashboards and folders in a folder."""
        path = f"/search?folderUIDs={quote(folder_uid, safe='')}"
        return self._rows("search the folder", self._face.api.GET, path)

    def delete_folder(self, uid: str) -> None:
        """With all that is in it."""
        self._ask("delete the folder", self._face.folder.delete_folder, uid)

    def datasources(self) -> list[dict[str, Any]]:
        """All data sources: name, uid, type, url, orgId."""
        return self._rows("list data sources", self._face.datasource.list_datasources)

    def create_datasource(self, body: dict[str, Any]) -> None:
        self._ask("create the data source", self._face.datasource.create_datasource, body)

    def dashboard(self, uid: str) -> dict[str, Any] | None:
        """`dashboard` and `meta`, or None where there is none."""
        found = self._ask(
            "read the dashboard", self._face.dashboard.get_dashboard, uid, may_lack=True
        )
        if found is None:
            return None
        if not _has(found, dashboard=dict, meta=dict):
            raise self._stranger("read the dashboard")
        return {"dashboard": found["dashboard"], "meta": found["meta"]}

    def write_dashboard(self, body: dict[str, Any]) -> None:
        """Create or update. ConfigError also where somebody wrote it since it was read."""
        self._ask("write the dashboard", self._face.dashboard.update_dashboard, body)

    def delete_dashboard(self, uid: str) -> None:
        self._ask("delete the dashboard", self._face.dashboard.delete_dashboard, uid, may_lack=True)

    def alert_rules(self) -> list[dict[str, Any]]:
        """All of the organization."""
        return self._rows("list alert rules", self._face.api.GET, _RULES)

    def create_alert_rule(self, rule: dict[str, Any]) -> None:
        self._ask("create an alert rule", self._face.api.POST, _RULES, json=rule)

    def update_alert_rule(self, rule: dict[str, Any]) -> None:
        path = f"{_RULES}/{quote(rule['uid'], safe='')}"
        self._ask("update an alert rule", self._face.api.PUT, path, json=rule)

    def delete_alert_rule(self, uid: str) -> None:
        path = f"{_RULES}/{quote(uid, safe='')}"
        self._ask("delete an alert rule", self._face.api.DELETE, path, may_lack=True)

    def _rows(self, doing: str, call: Any, *args: Any) -> list[dict[str, Any]]:
        rows = self._ask(doing, call, *args)
        if not isinstance(rows, list) or not all(_has(row, uid=str) for row in rows):
            raise self._stranger(doing)
        return rows

    def _ask(self, doing: str, call: Any, *args: Any, may_lack: bool = False, **more: Any) -> Any:
        """The answer; None where it is empty, or 404 and `may_lack`."""
        try:
            return call(*args, **more)
        except GrafanaException as refusal:
            if may_lack and refusal.status_code == requests.codes.not_found:
                return None
            raise ConfigError(self._refused(doing, refusal)) from None
        except requests.exceptions.JSONDecodeError as error:
            if not error.doc:
                return None  # deleting an alert rule: 204
            raise self._stranger(doing) from None
        except requests.exceptions.Timeout:
            raise ConfigError(
                f"{self.url} gave no answer within {self._timeout_s:g} s, asked to {doing}: "
                "run it again, it goes on from there"
            ) from None
        except requests.exceptions.TooManyRedirects:
            raise ConfigError(
                f"--url: {self.url} sends us elsewhere, asked to {doing}: give the address that "
                "Grafana itself has"
            ) from None
        except (requests.exceptions.RequestException, ValueError) as error:
            # ValueError: a name that can be no host's, which only the connection finds.
            reason = self._quoted(_root(error))
            raise ConfigError(f"--url: can't reach {self.url} to {doing}: {reason}") from None
        except (TypeError, RecursionError):
            # grafana-api looks for a message in an answer that is no object, or is one too deep.
            raise self._stranger(doing) from None

    def _refused(self, doing: str, refusal: GrafanaException) -> str:
        told = refusal.response
        message = told.get("message") if isinstance(told, dict) else None
        reason = self._quoted(message or told or refusal)
        answer = f"{self.url} answered {refusal.status_code}, asked to {doing}: {reason}"
        advice = _ADVICE.get(refusal.status_code)
        if advice is None and refusal.status_code >= requests.codes.server_error:
            advice = "run it again, it goes on from there"
        return f"{answer} ({advice})" if advice else answer

    def _stranger(self, doing: str) -> ConfigError:
        return ConfigError(
            f"--url: {self.url} answers not as Grafana does, asked to {doing}: is it its address?"
        )

    def _quoted(self, told: object) -> str:
        text = " ".join(str(told).replace(self._token, "[token]").split())
        return shown(text, _REASON_CHARACTERS)[1:-1]


_ADVICE: Final = {
    requests.codes.unauthorized: "--token must be a valid one of this Grafana",
    requests.codes.forbidden: "the token's service account needs the role Admin",
    requests.codes.not_found: "is --url right, with its path, and alerting switched on?",
    requests.codes.conflict: "there is something else with that name or uid",
    requests.codes.precondition_failed: "somebody else wrote it meanwhile, or has one of that "
    "name in the folder; look at it, and run this again",
    requests.codes.too_many_requests: "run it again later, it goes on from there",
}


def parts_of(url: str, option: str) -> tuple[str, str, int | None, str]:
    """Protocol, host, port and path, as grafana-api wants them. Raises ConfigError, which shows no
    password."""
    if "@" in url:  # also of one that is no address otherwise, and would be shown
        raise ConfigError(f"{option} must not hold a user or password")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{option} must be an address, got {shown(url)}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{option} must be like http://127.0.0.1:3000, got {shown(url)}")
    path = parts.path.strip("/")
    return parts.scheme, host_in_url(parts.hostname), port, f"{path}/" if path else ""


def _has(value: object, **kinds: type) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(k), t) for k, t in kinds.items())


def _root(error: BaseException) -> object:
    """What is at the bottom of an error of requests, urllib3 and the socket: "Connection refused",
    not three lines of addresses in memory."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    seen: BaseException = reason if isinstance(reason, BaseException) else error
    while (inner := seen.__cause__ or seen.__context__) is not None and isinstance(inner, OSError):
        seen = inner
    return getattr(seen, "strerror", None) or seen
