"""`paceline models`: get, list, path."""

from typing import Annotated

import typer

from deployments.models.cache import ModelCache
from deployments.models.catalog import EMBEDDED
from deployments.models.progress import TerminalProgress
from deployments.models.store import resolve_model

models_app = typer.Typer(
    help="Get models and see where they are.", no_args_is_help=True, rich_markup_mode=None
)

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="An embedded model (see `paceline models list`), or a hub name org/name.",
    ),
]


@models_app.command()
def get(
    name: ModelName,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a cached copy's checksums, not only sizes.")
    ] = False,
) -> None:
    """Make a model ready to be served. Does nothing when it is."""
    embedded = EMBEDDED.get(name)
    if embedded is None:
        folder = resolve_model(name)
    else:
        folder = ModelCache().get(embedded, checksums=verify, progress=TerminalProgress())
    typer.echo(f"{name} is ready in {folder}")


@models_app.command(name="list")
def list_models() -> None:
    """List the embedded models."""
    cache = ModelCache()
    for model in EMBEDDED.values():
        state = cache.find_damage(model) or "ready"
        typer.echo(f"{model.name}: {state}")
        typer.echo(f"    {model.summary} ({model.license})")
        typer.echo(f"    {cache.folder(model)}")


@models_app.command()
def path(name: ModelName) -> None:
    """Print the folder of a model that is ready."""
    typer.echo(resolve_model(name))
