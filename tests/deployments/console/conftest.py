"""A model of which everything here is served."""

from pathlib import Path

import pytest

from tests.tiny import save_tiny_llama

CONTEXT_TOKENS = 4096
"""Long enough for an answer that is stopped."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return save_tiny_llama(folder, max_position_embeddings=CONTEXT_TOKENS)
