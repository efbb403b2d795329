"""Refusals, and answers that are none: one line that tells what was asked, without the token."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.dashboard.grafana import Grafana
from engine.errors import ConfigError
from tests.cluster.dashboard.grafana_stub import TOKEN, GrafanaStub, serving

HTML = "<html>a message from the proxy</html>"


@pytest.fixture
def stub() -> Iterator[GrafanaStub]:
    with serving(GrafanaStub()) as stub:
        yield stub


def refusal(stub: GrafanaStub, token: str = TOKEN, timeout_s: float = 10.0) -> str:
    with pytest.raises(ConfigError) as refused:
        Grafana(stub.url, token, timeout_s).datasources()
    text = str(refused.value)
    assert "\n" not in text
    assert token not in text
    return text


def answer(status: int, body: str, kind: str = "application/json", more: str = "") -> bytes:
    sent = body.encode()
    head = f"HTTP/1.0 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(sent)}\r\n{more}"
    return head.encode() + b"\r\n" + sent


def test_a_wrong_token_is_refused_by_name(stub: GrafanaStub) -> None:
    text = refusal(stub, token="glsa_wrong")
    assert "answered 401, asked to list data sources" in text
    assert "--token" in text


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (403, "the role Admin"),
        (404, "is --url right"),
        (409, "something else with that name"),
        (412, "somebody else"),
        (429, "run it again later"),
        (500, "run it again"),
        (503, "run it again"),
        (400, "Bad"),
        (418, "answered 418"),
    ],
)
def test_each_refusal_tells_status_reason_and_what_to_do(
    stub: GrafanaStub, status: int, told: str
) -> None:
    stub.before = lambda method, path: (status, {"message": "Bad\nluck"})
    text = refusal(stub)
    assert f"answered {status}, asked to list data sources: Bad luck" in text
    assert told in text


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(answer(200, HTML, "text/html"), id="a page"),
        pytest.param(answer(200, '{"message": "hello"}'), id="an object"),
        pytest.param(answer(200, '[{"name": "no uid"}]'), id="rows of something else"),
        pytest.param(answer(200, "null"), id="null"),
        pytest.param(answer(200, ""), id="nothing"),
        pytest.param(answer(502, HTML, "text/html"), id="a proxy's page that says message"),
        pytest.param(answer(500, "null"), id="an error that is null"),
        pytest.param(answer(200, "[" * 100_000), id="too deep"),
    ],
)
def test_answers_of_others_are_taken_for_what_they_are(stub: GrafanaStub, sent: bytes) -> None:
    stub.before = lambda method, path: sent
    assert "answers not as Grafana does, asked to list data sources" in refusal(stub)


def test_a_dashboard_must_come_with_what_belongs_to_it(stub: GrafanaStub) -> None:
    stub.before = lambda method, path: (200, {"dashboard": []})
    with pytest.raises(ConfigError, match="asked to read the dashboard"):
        Grafana(stub.url, TOKEN).dashboard("paceline")


def test_a_redirect_is_not_followed(stub: GrafanaStub) -> None:
    stub.before = lambda method, path: answer(302, "", more=f"Location: {stub.url}/login\r\n")
    assert "sends us elsewhere" in refusal(stub)
    assert len(stub.calls) == 1


def test_no_answer_in_time_is_said_so(stub: GrafanaStub) -> None:
    def hang(method: str, path: str) -> bytes:
        stub.released.wait()
        return b""

    stub.before = hang
    assert "gave no answer within 0.05 s, asked to list data sources" in refusal(
        stub, timeout_s=0.05
    )


def test_a_connection_that_breaks_is_said_so(stub: GrafanaStub) -> None:
    stub.before = lambda method, path: b"\0"
    assert f"can't reach {stub.url}" in refusal(stub)


def test_nobody_there_is_said_so() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"can't reach {url} to list folders: Connection ref"):
            Grafana(url, TOKEN).folders()


def test_a_name_that_does_not_exist_is_said_so() -> None:
    for host in ("nowhere.invalid", f"{'x' * 70}.example"):
        with pytest.raises(ConfigError, match=f"can't reach http://{host} to list folders"):
            Grafana(f"http://{host}", TOKEN).folders()


def test_a_token_that_comes_back_is_not_shown(stub: GrafanaStub) -> None:
    stub.before = lambda method, path: (400, {"message": f"bad header: Bearer {TOKEN}"})
    assert "bad header: Bearer [token]" in refusal(stub)


def test_a_grafana_below_a_path_is_asked_there() -> None:
    with serving(GrafanaStub(prefix="/tools/grafana")) as stub:
        for url in (stub.url, f"{stub.url}/"):
            assert Grafana(url, TOKEN).folders() == []
        assert stub.calls == [("GET", "/folders")] * 2


@pytest.mark.parametrize(
    "url",
    [
        "",
        "grafana:3000",
        "127.0.0.1:3000",
        "ftp://grafana",
        "http://",
        "http://grafana:port",
        "http://grafana:99999",
        "http://[::1",
        "http://grafana/?orgId=1",
        "http://grafana/#x",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url must be"):
        Grafana(url, TOKEN)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    for url in (
        "http://admin:hunter2@grafana:3000",
        "http://hunter2@grafana",
        "http://a:hunter2@[::1",
        "a:hunter2@grafana",
    ):
        with pytest.raises(ConfigError, match="--url must not hold a user") as refused:
            Grafana(url, TOKEN)
        assert "hunter2" not in str(refused.value)


def test_an_address_of_version_6_is_one() -> None:
    with pytest.raises(ConfigError, match=r"can't reach http://\[::1\]:1 to list folders"):
        Grafana("http://[::1]:1", TOKEN).folders()


def test_what_is_gone_already_need_not_be_deleted(stub: GrafanaStub) -> None:
    grafana = Grafana(stub.url, TOKEN)
    grafana.delete_dashboard("none")
    grafana.delete_alert_rule("none")
    with pytest.raises(ConfigError, match="answered 404, asked to delete the folder"):
        grafana.delete_folder("none")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"uid": "x", "title": "x", "panels": [{"type": "stat", "titel": 1}]}, "titel: unknown"),
        ({"uid": "x", "title": "x", "panels": [{}]}, "unreadable"),
        ({"uid": "x" * 41, "title": "x"}, "too long"),
    ],
)
def test_the_stub_refuses_a_dashboard_that_is_none(body: dict[str, Any], found: str) -> None:
    stub = _violated(lambda grafana: grafana.write_dashboard({"dashboard": body}))
    assert found in "".join(stub.kept.violations)


def test_the_stub_refuses_what_is_not_documented() -> None:
    stub = _violated(lambda grafana: grafana.create_datasource({"name": "x", "kind": "y"}))
    assert "'kind' was unexpected" in "".join(stub.kept.violations)


def _violated(call: Callable[[Grafana], None]) -> GrafanaStub:
    stub = GrafanaStub()

    def refused() -> None:
        with serving(stub), pytest.raises(ConfigError, match="violation"):
            call(Grafana(stub.url, TOKEN))

    with pytest.raises(AssertionError):
        refused()
    return stub
