"""The operators, built once and kept with pytest's cache."""

from pathlib import Path

import pytest

from engine.kernels import native


@pytest.fixture(scope="session")
def compile_folder(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("compiled")


@pytest.fixture(scope="session")
def operators(compile_folder: Path) -> None:
    native.load(compile_folder, print)
