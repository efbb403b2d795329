"""How a person calls things in Grafana, and what uids they get."""

import hashlib
from dataclasses import dataclass
from typing import Final

DEFAULT_NAME: Final = "Paceline"
"""Of folder and data source."""
DEFAULT_PROMETHEUS_URL: Final = "http://127.0.0.1:9090"


@dataclass(frozen=True, slots=True)
class Names:
    folder: str = DEFAULT_NAME
    datasource: str = DEFAULT_NAME
    prometheus_url: str = DEFAULT_PROMETHEUS_URL
    """For a data source that is missing."""


def uid_of(name: str) -> str:
    """Uid of the folder or data source that is made under `name`, in any script."""
    return f"paceline-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
