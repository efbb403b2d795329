"""The replica's log: Ray Serve's own, with a line for each request.

Serve writes one file for each replica, as text or as JSON, with replica, deployment and application
in each line, and takes care of its size. What the packages here log goes the same way.
"""

import logging
from typing import Final

from ray.serve.schema import LoggingConfig

from cluster.metrics.requests import RequestRecord
from deployments.config import LogsSection
from deployments.request_ids import request_id
from engine.events import log_event

SERVES_LOGGER: Final = "ray.serve"
PACKAGES: Final = ("cluster", "deployments", "engine", "policy")
NO_REQUEST: Final = "-"

logger = logging.getLogger(__name__)


def serves_logging(logs: LogsSection, level: str | None = None) -> LoggingConfig:
    """What Serve is told. `level`: another than the configured one."""
    return LoggingConfig(
        encoding="JSON" if logs.format == "json" else "TEXT",
        log_level=(level or logs.level).upper(),
        logs_dir=logs.folder,
        enable_access_log=False,  # it has the route and the status of what `log_request` tells
    )


def forward_to_serve() -> None:
    """From now on, what this process's packages log goes to Serve's log at its level."""
    level = logging.getLogger(SERVES_LOGGER).getEffectiveLevel()
    handler = _ToServe()
    for name in PACKAGES:
        package = logging.getLogger(name)
        package.handlers = [handler]
        package.propagate = False
        package.setLevel(level)


class _ToServe(logging.Handler):
    """Serve puts its own handlers in place, and others when its settings change."""

    def emit(self, record: logging.LogRecord) -> None:
        if (current := request_id()) != NO_REQUEST:
            record.request_id = current
        # Serve writes to standard error as well, which Ray keeps: there only what is wrong.
        record.log_to_stderr = record.levelno >= logging.WARNING
        logging.getLogger(SERVES_LOGGER).handle(record)


def log_request(record: RequestRecord) -> None:
    """One line of a request that has ended."""
    log_event(
        logger,
        "request",
        outcome=str(record.outcome),
        prompt_tokens=record.num_prompt_tokens,
        cached_tokens=record.num_cached_tokens,
        new_tokens=record.num_new_tokens,
        rounds=record.num_rounds,
        drafted=record.num_drafted,
        accepted=record.num_accepted,
        queue_s=max(record.queue_s, default=None),
        first_token_s=record.first_token_s,
        seconds=record.seconds,
        error=record.error,
    )
