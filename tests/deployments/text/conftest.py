"""One tokenizer of each kind."""

import pytest
from transformers import PreTrainedTokenizerFast

from tests.deployments.text.tokens import BUILDERS
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture(scope="session", params=sorted(BUILDERS))
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return BUILDERS[request.param]()


@pytest.fixture(scope="session")
def byte_level() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()
