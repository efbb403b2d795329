"""Parsed requests that differ from a plain one in the fields given."""

from typing import Any

import pytest

from deployments.openai.schemas import ChatRequest, CompletionRequest
from engine.errors import RequestError

HELLO = [{"role": "user", "content": "hello"}]


def completion(**fields: Any) -> CompletionRequest:
    return CompletionRequest.parse({"model": "m", "prompt": "hi"} | fields)


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.parse({"model": "m", "messages": HELLO} | fields)


def refusal(parse: Any, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    return caught.value
