"""A pydantic model's first complaint, as a RequestError that names field and value."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from deployments.json_values import show
from engine.errors import RequestError

Model = TypeVar("Model", bound=BaseModel)


class ModelNotFound(RequestError):
    """Another model is asked for than the one served here."""


_EXPECTED = {
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_type": "must be an object",
    "string_type": "must be a string",
}


def validated(model: type[Model], body: Mapping[str, Any]) -> Model:
    """`body` as a `model`. Raises RequestError."""
    # Here, and not left to pydantic, which can't name a field that is no valid Unicode.
    for name in body:
        if name not in model.model_fields:
            raise RequestError(
                plain_name(name), f"{plain_name(name)} is not a field of this request"
            )
    try:
        return model.model_validate(dict(body))
    except ValidationError as error:
        raise _request_error(error.errors(include_url=False)[0]) from None


def _request_error(error: ErrorDetails) -> RequestError:
    field = _path(error["loc"])
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return RequestError(field, f"{field} is required")
    if kind == "extra_forbidden":
        return RequestError(field, f"{field} is not a field of this request")
    context = error.get("ctx", {})
    if kind == "value_error":
        expected = str(context["error"])
    elif kind == "literal_error":
        expected = f"must be {context['expected']}"
    else:
        expected = _EXPECTED.get(kind, f"is not valid: {error['msg']}")
    return RequestError(field, f"{field} {expected}, got {show(value)}")


def _path(location: tuple[int | str, ...]) -> str:
    """("messages", 0, "role") -> "messages[0].role"."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{plain_name(step)}" if path else plain_name(step)
    return path or "body"


def plain_name(name: object) -> str:
    """A field's name, for a message: as it is when short and printable, or as JSON."""
    text = str(name)
    return text if text.isidentifier() and text.isascii() and len(text) <= 40 else show(name)
