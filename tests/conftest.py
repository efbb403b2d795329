"""Fixtures for every test, and which of them share a process."""

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from deployments.models.cache import ModelCache
from deployments.models.catalog import EMBEDDED
from deployments.models.progress import TerminalProgress

SERVE = "tests/serve/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real applications begin first, as they take longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(SERVE))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByFile(config, log)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Tests of a file share a process, and so its fixtures; those of real applications one Ray."""

    def _split_scope(self, nodeid: str) -> str:
        return SERVE if nodeid.startswith(SERVE) else nodeid.partition("::")[0]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the embedded model, made now if PACELINE_HOME (or the default cache) lacks it."""
    return ModelCache().get(EMBEDDED["smollm2-135m"], progress=TerminalProgress())
