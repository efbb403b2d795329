"""`paceline`: the command line's root, and how its errors end."""

import os
import sys
from typing import Annotated

import typer

from deployments.commands.bench import bench_app
from deployments.commands.calibrate import calibrate
from deployments.commands.chat import chat
from deployments.commands.dashboards import dashboards_app
from deployments.commands.distill import distill
from deployments.commands.draft import draft_app
from deployments.commands.observe import observe
from deployments.commands.policy import policy_app
from deployments.commands.serve import serve
from deployments.commands.simulate import simulate
from deployments.commands.status import status
from deployments.models.commands import models_app
from engine.errors import ConfigError, PacelineError

DEBUG = "PACELINE_DEBUG"
"""Environment variable: set, an unexpected error shows its traceback."""

app = typer.Typer(
    name="paceline",
    help="Serve a language model with batched speculative decoding.\n\n"
    "Start with: paceline models get smollm2-135m, then paceline serve.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(serve)
app.command()(status)
app.command()(chat)
app.command()(observe)
app.command()(distill)
app.command()(calibrate)
app.command()(simulate)
app.add_typer(models_app, name="models")
app.add_typer(policy_app, name="policy")
app.add_typer(draft_app, name="draft")
app.add_typer(dashboards_app, name="dashboards")
app.add_typer(bench_app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"paceline {version('paceline')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Root options."""


def main() -> None:
    """Run a command. Exit code 2: bad usage or configuration; 1: failed; 130: interrupted."""
    try:
        app()
    except PacelineError as error:
        print(f"paceline: error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"paceline: error: {reason} (set {DEBUG}=1 to see where)", file=sys.stderr)
        sys.exit(1)
