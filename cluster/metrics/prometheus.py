"""A Prometheus for an application: its configuration, its rules, and its command line."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cluster.metrics.rules import JOB, rule_file
from cluster.urls import address_in_url
from engine.files import write_text

SCRAPE_INTERVAL: Final = "5s"
"""Replicas report every five seconds."""
TARGETS_PATH: Final = "/metrics/targets"
"""Of the application: where its machines export their metrics, as `http_sd_configs` read it."""
CONFIG_FILE: Final = "prometheus.yml"
RULE_FILE: Final = "paceline.rules.yml"
KEY_FILE: Final = "api-key"


@dataclass(frozen=True, slots=True)
class Observed:
    """An application to be watched."""

    url: str
    api_key: str | None = None


def find_program(name: str) -> str | None:
    """`prometheus` or `promtool`: on the path, or where `make observe` puts them."""
    beside_us = Path(sys.prefix) / "prometheus" / "usr" / "bin" / name
    return shutil.which(name) or (str(beside_us) if beside_us.is_file() else None)


def write_folder(folder: Path, app: Observed) -> Path:
    """Write configuration and rules; the configuration's path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if app.api_key:
        write_text(folder / KEY_FILE, app.api_key, mode=0o600)
    write_text(folder / RULE_FILE, _yaml(rule_file()))
    write_text(folder / CONFIG_FILE, _yaml(configuration(app)))
    return folder / CONFIG_FILE


def configuration(app: Observed) -> dict[str, Any]:
    """Paths in it are relative to the file's folder."""
    discovery: dict[str, Any] = {
        "url": f"{app.url.rstrip('/')}{TARGETS_PATH}",
        "refresh_interval": "10s",
    }
    if app.api_key:
        discovery["authorization"] = {"type": "Bearer", "credentials_file": KEY_FILE}
    return {
        "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
        "rule_files": [RULE_FILE],
        "scrape_configs": [
            {
                "job_name": JOB,
                "http_sd_configs": [discovery],
                # What Ray's exporter says of itself, on every series.
                "metric_relabel_configs": [{"action": "labeldrop", "regex": "otel_scope_.*"}],
            }
        ],
    }


def command(program: str, folder: Path, host: str, port: int) -> list[str]:
    """Starts Prometheus on what `write_folder` wrote; its data go there too."""
    return [
        program,
        f"--config.file={folder / CONFIG_FILE}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address_in_url(host, port)}",
        "--log.level=warn",
    ]


def _yaml(value: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, width=1_000)
    return text
