"""What every part of a request is made of: models that convert nothing, and valid Unicode."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainValidator


class StrictModel(BaseModel):
    """Takes JSON's own types only, and no field that it doesn't know."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


def valid_text(value: object) -> str:
    """`value`, if it is a string that can be encoded. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode (it holds half of a surrogate pair)") from None
    return value


Text = Annotated[str, PlainValidator(valid_text, json_schema_input_type=str)]
