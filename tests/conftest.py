"""Fixtures for every test, and which of them share a process."""

from pathlib import Path

import pytest

from deployments.models.cache import ModelCache
from deployments.models.catalog import EMBEDDED
from deployments.models.progress import TerminalProgress

SERVE = Path(__file__).parent / "serve"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a file share a process, and so its fixtures; those of real applications share one
    Ray, and begin first, as they take longest."""
    for item in items:
        group = "serve" if SERVE in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: SERVE not in item.path.parents)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the embedded model, made now if PACELINE_HOME (or the default cache) lacks it."""
    return ModelCache().get(EMBEDDED["smollm2-135m"], progress=TerminalProgress())
