"""`paceline status`: what each replica of a running application is doing."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deployments.commands.options import ApiKey
from deployments.commands.policy import DEFAULT_URL
from deployments.commands.policy_answers import ask, kinds_of
from deployments.commands.policy_show import actor_lost, lengths_in_words
from engine.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_EVERY_S = 1.0
"""As on the console: a replica without work is heard of every half minute."""
_NOTHING = "–"


def status(
    url: Annotated[str, typer.Option(help="Where the application answers.")] = DEFAULT_URL,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each look, as GET /policy has it.")
    ] = False,
    api_key: ApiKey = None,
) -> None:
    """Show what each replica does: batch, draft length, acceptance, tokens/s, queue."""
    from rich.console import Console

    described = ask("GET", url, api_key)
    if as_json:
        typer.echo(json.dumps(described))
    elif not watch:
        Console(highlight=False).print(_shown(described))
    if watch:
        _watch(url, api_key, described, as_json=as_json)


def _watch(url: str, api_key: str | None, described: dict[str, Any], *, as_json: bool) -> None:
    """Until Ctrl-C. A server that is gone for a while is told of, and asked again."""
    if as_json:
        while True:
            time.sleep(LOOK_EVERY_S)
            try:
                typer.echo(json.dumps(ask("GET", url, api_key)))
            except ConfigError as error:
                typer.echo(f"{error}; asking again", err=True)
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(_shown(described), console=console, auto_refresh=False) as live:
        while True:
            live.refresh()
            time.sleep(LOOK_EVERY_S)
            try:
                live.update(_shown(ask("GET", url, api_key)))
            except ConfigError as error:
                live.update(f"{error}; asking again")


def _shown(described: dict[str, Any]) -> "RenderableType":
    """The replicas in a table, under a line for all of them."""
    from rich import box
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    replicas = described["replicas"]
    table = Table(box=box.SIMPLE)
    for heading in ("replica", "state"):
        table.add_column(heading)
    for heading in ("tokens/s", "batch", "queue", "length", "accepted", "KV", "table"):
        table.add_column(heading, justify="right")
    for replica in replicas:
        table.add_row(*map(escape, _row(replica)))
    lines = [f"{_total(replicas)}; {_policy(described)}"]
    if lost := actor_lost(described):
        lines.append(lost)
    return Group(*map(escape, lines), table)


def _row(replica: dict[str, Any]) -> tuple[str, ...]:
    def told(name: str, form: str = "{}") -> str:
        return form.format(replica[name]) if name in replica else _NOTHING

    drafted = replica.get("drafted_tokens", 0)
    state = "silent" if replica.get("is_silent") else str(replica.get("stage") or "starting")
    return (
        str(replica["replica_id"]),
        f"{state}, {replica['kind']}" if "kind" in replica else state,
        told("tokens_per_s", "{:.1f}"),
        told("decoding"),
        told("waiting"),
        told("draft_len") if replica.get("decoding") else _NOTHING,
        f"{replica['accepted_tokens'] / drafted:.0%}" if drafted else _NOTHING,
        told("kv_use", "{:.0%}"),
        f"v{replica['version_in_force']}",
    )


def _total(replicas: list[dict[str, Any]]) -> str:
    """What a silent one last told of itself is no longer counted."""
    heard = [replica for replica in replicas if not replica.get("is_silent")]
    ready = sum(replica.get("stage") == "ready" for replica in heard)
    rate = sum(replica.get("tokens_per_s", 0.0) for replica in heard)
    queue = sum(replica.get("waiting", 0) for replica in heard)
    return f"{ready} of {len(replicas)} replicas ready, {rate:.1f} tokens/s, {queue} waiting"


def _policy(described: dict[str, Any]) -> str:
    told = []
    for kind in kinds_of(described):
        table = kind["table"]
        lengths = lengths_in_words(table["rungs"])
        told.append(f"policy {table['mode']}, version {table['version']} ({lengths})")
    return "; ".join(told)
