"""JSON values inside a request that go on as they are: into a template, a grammar, a prompt."""

import math

from deployments.strict_model import valid_text

MAX_DEPTH = 64
"""Levels of nesting: templates and schemas are walked recursively."""


def check_plain_json(value: object) -> None:
    """Raises ValueError unless `value` can be written as JSON in valid Unicode."""
    waiting = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"must be nested at most {MAX_DEPTH} levels deep")
        if isinstance(part, str):
            valid_text(part)
        elif isinstance(part, dict):
            for key, entry in part.items():
                valid_text(key)
                waiting.append((entry, depth + 1))
        elif isinstance(part, list):
            waiting.extend((entry, depth + 1) for entry in part)
        elif isinstance(part, float) and not math.isfinite(part):
            raise ValueError("must hold finite numbers only")
        elif part is not None and not isinstance(part, bool | int | float):
            raise ValueError("must be JSON")
