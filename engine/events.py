"""Lines of the log that tell what happened in numbers, in words and as fields of the record."""

import logging


def log_event(logger: logging.Logger, event: str, **fields: object) -> None:
    """`event: name=value ...`; a formatter of structured logs finds each field in the record.

    A field that is None is left out. Names must not be those of a LogRecord's own attributes.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    told = {name: value for name, value in fields.items() if value is not None}
    words = " ".join(f"{name}={_shown(value)}" for name, value in told.items())
    logger.info("%s: %s", event, words, extra={"event": event, **told})


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return repr(text) if " " in text else text
