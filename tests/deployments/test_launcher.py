import socket
from pathlib import Path

import pytest

from deployments.commands.serve import metrics_line
from deployments.config import ServerSection, parse_config
from deployments.launcher import Launcher, last_line, set_environment
from deployments.ports import METRICS_PORT, free_metrics_port, require_free_for, require_free_port
from engine.errors import ConfigError


def test_a_port_in_use_is_one_line_with_host_and_port() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127.0.0.1, port {port} \(Address already in use"):
            require_free_port(ServerSection(port=port))
    require_free_port(ServerSection(port=port))


def test_a_port_of_another_command_is_named_by_its_option() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--port: can't listen on 127.0.0.1, port {port}"):
            require_free_for("127.0.0.1", port)


def test_metrics_go_where_they_are_wanted_or_anywhere_if_nobody_cares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--metrics-port: can't listen .* port {port}"):
            free_metrics_port(port)
        monkeypatch.setattr("deployments.ports.METRICS_PORT", port)
        assert free_metrics_port(None) == 0
    assert free_metrics_port(None) == port
    assert free_metrics_port(port) == port


def test_the_ready_message_tells_where_metrics_are() -> None:
    told = metrics_line(["10.0.0.1:8080", "10.0.0.2:8080"], usual_is_taken=False)
    assert "http://10.0.0.1:8080/metrics, http://10.0.0.2:8080/metrics." in told
    told = metrics_line(["10.0.0.1:31234"], usual_is_taken=True)
    assert f"http://10.0.0.1:31234/metrics (port {METRICS_PORT} is taken)." in told
    assert "none" in metrics_line([], usual_is_taken=True)


def test_a_host_of_another_machine_is_refused() -> None:
    # 203.0.113.0/24 is set aside for documentation.
    with pytest.raises(ConfigError, match=r"203.0.113.9"):
        require_free_port(ServerSection(host="203.0.113.9"))


@pytest.mark.parametrize("host", ["x" * 70, "ü..x", "a\0b", "no such host"])
def test_a_host_that_is_no_name_is_one_line(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^server.host must be an address.*, got [^\n]*$"):
        require_free_port(ServerSection(host=host))


@pytest.mark.parametrize(
    ("users", "spin_count", "wait_policy"),
    [
        ({}, "30000", "ACTIVE"),
        ({"GOMP_SPINCOUNT": "7"}, "7", None),
        ({"OMP_WAIT_POLICY": "passive"}, None, "passive"),
    ],
)
def test_the_environment_of_replicas_is_the_users_first(
    users: dict[str, str], spin_count: str | None, wait_policy: str | None
) -> None:
    environment = dict(users)
    set_environment(environment)
    assert environment.get("GOMP_SPINCOUNT") == spin_count
    assert environment.get("OMP_WAIT_POLICY") == wait_policy
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    assert environment.items() >= users.items()


def test_a_model_that_is_missing_is_found_out_early(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    with pytest.raises(ConfigError, match=r"model: .*config.json"):
        parse_config({"model": str(model)}, "test").with_models_found()
    (model / "config.json").write_text("{}")
    draft = {"kind": "model", "model": str(tmp_path / "draft")}
    with pytest.raises(ConfigError, match=r"drafter.model: .*draft"):
        parse_config({"model": str(model), "drafter": draft}, "test").with_models_found()
    found = parse_config({"model": str(model)}, "test").with_models_found()
    assert (found.model, found.model_name) == (str(model), "model")


def test_the_last_line_of_a_traceback_is_its_error() -> None:
    assert last_line("Traceback:\n  File x\nValueError: too bad.\n\n") == "ValueError: too bad"
    assert last_line("") == "unknown reason"


@pytest.mark.parametrize(
    ("replicas", "refusal"),
    [
        ({"num_replicas": 2}, None),
        (
            {"num_replicas": 3},
            r"3 x 1 CPUs are reserved \(num_replicas, engine\.tp_size, num_cpus\).* has 2",
        ),
        ({"num_gpus": 1.0}, r"1 x 1 GPUs are reserved .* has 0"),
    ],
)
def test_replicas_that_never_fit_are_refused(
    replicas: dict[str, float], refusal: str | None
) -> None:
    launcher = Launcher(parse_config({"replicas": replicas}, "test"), address=None)
    if refusal is None:
        launcher._require_resources({"CPU": 2.0})
        return
    with pytest.raises(ConfigError, match=refusal):
        launcher._require_resources({"CPU": 2.0})
