"""What is logged of a request, through Serve's own files."""

import json
import logging
import re
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import pytest
from ray.serve._private.common import ServeComponentType
from ray.serve._private.logging_utils import configure_component_logger
from transformers import PreTrainedTokenizerFast

from deployments.app import build_application
from deployments.config import LogsSection, parse_config
from deployments.logs import (
    PACKAGES,
    SERVES_LOGGER,
    forward_to_serve,
    log_request,
    serves_logging,
)
from engine.errors import EngineDead, EngineFull
from engine.events import log_event
from tests.deployments.api_app import COMPLETION, App, tokens
from tests.tiny_tokenizer import byte_level_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (SERVES_LOGGER, *PACKAGES)]
    before = [(one, [*one.handlers], one.propagate, one.level) for one in loggers]
    yield
    for handler in logging.getLogger(SERVES_LOGGER).handlers:
        if isinstance(handler, MemoryHandler) and handler.target is not None:
            handler.target.close()
    for one, handlers, propagate, level in before:
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


def log_into(folder: Path, **logs: Any) -> None:
    """As in a replica of Serve's."""
    configure_component_logger(
        component_name="paceline_paceline",
        component_id="abc",
        component_type=ServeComponentType.REPLICA,
        logging_config=serves_logging(LogsSection(folder=str(folder), **logs)),
        max_bytes=10**6,
        backup_count=1,
    )
    forward_to_serve()


def lines_in(folder: Path) -> list[str]:
    (path,) = folder.iterdir()
    return path.read_text().splitlines()


async def test_a_request_is_one_line_with_its_id_and_numbers(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    log_into(tmp_path, format="json")
    app = App(tokenizer, tokens(tokenizer, "abc"), tell=log_request)
    answer = await app.post(
        "/v1/completions", json=COMPLETION, headers={"x-request-id": "order 66"}
    )
    (line,) = lines_in(tmp_path)
    told = json.loads(line)
    usage = answer.json()["usage"]
    assert told["request_id"] == "order 66"
    assert (told["event"], told["outcome"]) == ("request", "finished")
    assert told["prompt_tokens"] == usage["prompt_tokens"]
    assert told["new_tokens"] == usage["completion_tokens"] == 4
    assert told["cached_tokens"] == 3
    assert (told["rounds"], told["drafted"], told["accepted"]) == (4, 8, 0)
    assert told["seconds"] >= told["first_token_s"] >= 0
    assert told["replica"] == "abc"
    assert told["levelname"] == "INFO"


async def test_the_console_has_the_same_in_words(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    log_into(tmp_path)
    app = App(tokenizer, [EngineFull("full", retry_s=3)], tell=log_request)
    await app.post("/v1/completions", json=COMPLETION, headers={"x-request-id": "order-66"})
    (line,) = lines_in(tmp_path)
    assert re.search(r"^INFO .* order-66 .*request: outcome=full prompt_tokens=\d+ ", line)
    assert "first_token_s" not in line


async def test_why_the_engine_failed_is_told(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    log_into(tmp_path, format="json")
    app = App(tokenizer, [EngineDead("a step failed")], tell=log_request)
    await app.post("/v1/completions", json=COMPLETION)
    told = json.loads(lines_in(tmp_path)[-1])
    assert (told["outcome"], told["error"]) == ("failed", "a step failed")


async def test_an_unexpected_error_is_logged_with_its_requests_id(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    log_into(tmp_path, format="json", level="error")
    app = App(tokenizer, [ZeroDivisionError("oops")], tell=log_request)
    await app.post("/v1/completions", json=COMPLETION, headers={"x-request-id": "order-66"})
    (line,) = lines_in(tmp_path)
    told = json.loads(line)
    assert told["request_id"] == "order-66"
    assert "ZeroDivisionError: oops" in told["exc_text"]


async def test_standard_error_has_only_what_is_wrong(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log_into(tmp_path)
    app = App(tokenizer, [ZeroDivisionError("oops")], tell=log_request)
    await app.post("/v1/completions", json=COMPLETION)
    told = capfd.readouterr().err
    assert "ZeroDivisionError: oops" in told
    assert "outcome=failed" not in told


def test_an_application_is_deployed_with_its_log_and_its_surge() -> None:
    values = {"model": "x", "logs": {"format": "json"}, "replicas": {"max_surge_percent": 50}}
    app = build_application(parse_config(values, "args"))
    options: Any = app._bound_deployment._deployment_config
    assert options.max_surge_percent == 50
    assert options.logging_config["encoding"] == "JSON"
    assert options.logging_config["log_level"] == "INFO"


def test_what_has_blanks_is_quoted_and_nothing_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("tests.events")
    with caplog.at_level(logging.INFO, "tests.events"):
        log_event(logger, "table", version=3, why="set by hand", gain=0.123456, none=None)
    (record,) = caplog.records
    assert record.getMessage() == "table: version=3 why='set by hand' gain=0.1235"
    assert vars(record).items() >= {"event": "table", "version": 3, "gain": 0.123456}.items()
    assert "none" not in vars(record)
