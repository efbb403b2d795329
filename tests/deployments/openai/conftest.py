"""A tokenizer for the API's tests."""

import pytest
from transformers import PreTrainedTokenizerFast

from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()
