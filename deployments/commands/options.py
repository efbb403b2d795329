"""Options that several commands have."""

from typing import Annotated, Literal

import typer

from engine.errors import ConfigError

Dtype = Annotated[
    Literal["auto", "bfloat16", "float32", "float16"], typer.Option(help="Of the weights.")
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        envvar="PACELINE_API_KEY", show_envvar=True, help="Where the server asks for an API key."
    ),
]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
Compile = Annotated[
    bool, typer.Option("--compile/--no-compile", help="Compile the forward on a CPU.")
]


def bearer(api_key: str | None) -> dict[str, str]:
    """Headers that carry the key. Raises ConfigError, which does not show it."""
    if not api_key:
        return {}
    if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
        raise ConfigError("--api-key must be printable ASCII characters without blanks")
    return {"Authorization": f"Bearer {api_key}"}
