"""Fixtures for every test."""

from pathlib import Path

import pytest

from deployments.models.cache import ModelCache
from deployments.models.catalog import EMBEDDED
from deployments.models.progress import TerminalProgress


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the embedded model, made now if PACELINE_HOME (or the default cache) lacks it."""
    return ModelCache().get(EMBEDDED["smollm2-135m"], progress=TerminalProgress())
