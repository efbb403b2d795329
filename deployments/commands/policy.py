"""`paceline policy`: the speculation policy of a running application, shown, set and explained."""

from pathlib import Path
from typing import Annotated, Any

import typer

from deployments.commands.options import ApiKey
from deployments.commands.policy_account import print_account
from deployments.commands.policy_answers import ask, one_kind, taken_over
from deployments.commands.policy_show import print_history, print_policy
from engine.errors import ConfigError
from policy.choice import parse_choice
from policy.export import ExportFormat
from policy.quoting import shown

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_MAX_BATCH = 1024
"""Of another engine, in an exported schedule: more than most run at once."""

policy_app = typer.Typer(
    help="Show, set, explain or export how many tokens are drafted at which batch size.",
    no_args_is_help=True,
)

Url = Annotated[str, typer.Option(help="Where the application answers.")]


@policy_app.command()
def show(url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Show the table in force, where it comes from, and what it does on each replica."""
    print_policy(ask("GET", url, api_key))


@policy_app.command("set")
def set_(
    mode: Annotated[str, typer.Argument(metavar="adaptive|off|fixed|table")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="K|'BATCH:LENGTH,...'", help="For fixed: 4. For table: 1:5,8:2."),
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Set the policy: adaptive, off, fixed K, or table '1:5,4:3,16:1'."""
    body = {"policy": read_policy(mode, value)}
    print_policy(taken_over(url, api_key, ask("PUT", url, api_key, body=body)))


@policy_app.command()
def history(url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Show the tables so far, and the reason for each."""
    print_history(ask("GET", url, api_key))


@policy_app.command()
def explain(
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Sequences that decode at once; the whole table if left out."),
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Tell which length each batch size has, why, and what it gains over none."""
    if batch_size is None:
        print_account(ask("GET", url, api_key, path="/policy/explain", expected="kinds"))
        return
    typer.echo(
        ask("GET", url, api_key, path=f"/policy/explain?batch_size={batch_size}", expected="text")[
            "text"
        ]
    )


@policy_app.command()
def export(
    format: Annotated[ExportFormat, typer.Option(help="Whose configuration keys to write.")],
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    out: Annotated[Path | None, typer.Option(help="Write here instead of showing it.")] = None,
    max_batch_size: Annotated[
        int, typer.Option(min=1, help="Largest batch of the other engine.")
    ] = DEFAULT_MAX_BATCH,
    kind: Annotated[
        str | None, typer.Option(help="Whose schedule, where replicas are of several kinds.")
    ] = None,
) -> None:
    """Write the schedule in force for another engine; what it lacks is told beside it."""
    from engine.files import replacing
    from policy.export import export as exported_by

    table = one_kind(ask("GET", url, api_key), kind)["table"]
    exported = exported_by(table["rungs"], max_batch_size, format)
    if out is None:
        typer.echo(exported.text, nl=False)
    else:
        try:
            with replacing(out) as file:
                file.write(exported.text.encode())
        except OSError as error:
            raise ConfigError(f"--out: can't write {out}: {error.strerror or error}") from None
    for note in exported.notes:
        typer.echo(note, err=True)


def read_policy(mode: str, value: str | None) -> str | dict[str, Any]:
    """The policy that the command's words mean. Raises ConfigError.

    >>> read_policy("table", "1:5,8:2")
    {'table': {'1': 5, '8': 2}}
    """
    if mode not in ("adaptive", "off", "fixed", "table"):
        raise ConfigError(
            f"policy must be adaptive, off, fixed K or table BATCH:LENGTH,..., got {shown(mode)}"
        )
    if mode in ("adaptive", "off"):
        if value is not None:
            raise ConfigError(f"policy {mode} takes no value, got {shown(value)}")
        return mode
    if value is None:
        example = "fixed 4" if mode == "fixed" else "table 1:5,8:2"
        raise ConfigError(f"policy {mode} needs a value, such as: paceline policy set {example}")
    setting = {mode: _whole_number(value) if mode == "fixed" else _lengths(value)}
    try:
        choice = parse_choice(setting)
    except ValueError as error:
        raise ConfigError(f"policy: {error}") from None
    return choice.setting


def _lengths(text: str) -> dict[int, int]:
    lengths: dict[int, int] = {}
    for pair in text.split(","):
        batch_size, colon, length = pair.partition(":")
        if not colon:
            raise ConfigError(f"policy table must be BATCH:LENGTH,..., got {shown(pair.strip())}")
        key = _whole_number(batch_size)
        if key in lengths:
            raise ConfigError(f"policy table gives batch size {shown(key)} twice")
        lengths[key] = _whole_number(length)
    return lengths


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"policy must be made of whole numbers, got {shown(text.strip())}"
        ) from None
