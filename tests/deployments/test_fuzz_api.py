"""Requests made up from the app's own OpenAPI schema: none of them is a fault of ours."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, settings

from tests.deployments.api_app import App, tokens
from tests.tiny_tokenizer import byte_level_tokenizer

tokenizer = byte_level_tokenizer()
app = App(tokenizer, tokens(tokenizer, "Well then"))
schema = schemathesis.openapi.from_asgi("/openapi.json", app.asgi)


@schema.parametrize()
@settings(
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_is_a_server_error(case: "schemathesis.Case[Any]") -> None:
    response = case.call()
    assert response.status_code < 500
