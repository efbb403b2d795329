"""How `paceline policy` shows tables, their history and the replicas."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deployments.commands.policy_answers import kinds_of
from policy.table import UNBOUNDED_BATCH_SIZE

if TYPE_CHECKING:
    from rich.table import Table


def print_policy(described: dict[str, Any]) -> None:
    """Each kind's table with the reason for it, then the replicas."""
    from rich.console import Console

    console = Console(highlight=False)
    for kind in kinds_of(described):
        table = kind["table"]
        if name := kind.get("kind"):
            console.print(f"Replicas on {name}:", markup=False)
        console.print(
            f"Policy [bold]{table['mode']}[/bold], version {table['version']}, "
            f"{source_in_words(table['source'])}, {_age(table['set_at_unix_s'])}"
        )
        if history := kind.get("history"):
            console.print(f"Last change: {history[-1]['why']}", markup=False)
        console.print(_rungs(table["rungs"]))
    console.print(_replicas(described["replicas"]))
    if lost := actor_lost(described):
        console.print(lost)


def print_history(described: dict[str, Any]) -> None:
    """Each kind's tables, oldest first, with the reason for each."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for kind in kinds_of(described):
        if name := kind.get("kind"):
            console.print(f"Replicas on {name}:", markup=False)
        entries = kind.get("history") or []
        if not entries:
            console.print("Nothing is known of earlier tables: the policy actor keeps them.")
            continue
        table = Table("version", "set", "lengths", "why", box=box.SIMPLE)
        for entry in entries:
            table.add_row(
                str(entry["version"]),
                _age(entry["at_unix_s"]),
                lengths_in_words(entry["rungs"]),
                _plain(entry["why"]),
            )
        console.print(table)


def actor_lost(described: dict[str, Any]) -> str:
    """A line where it was not the policy actor that described; else nothing."""
    actor = described.get("policy_actor", {})
    if actor.get("reachable", True):
        return ""
    heard = actor.get("heard_s_ago")
    since = "never heard from" if heard is None else f"last heard from {heard:.0f} s ago"
    return f"The policy actor is being restarted ({since}); replicas keep their table."


def lengths_in_words(rungs: Sequence[Sequence[int]]) -> str:
    """Rungs in the words of `paceline policy set`.

    >>> lengths_in_words([[2, 4], [8, 2]])
    '2:4,8:2'
    """
    if not rungs:
        return "off"
    if rungs[0][0] >= UNBOUNDED_BATCH_SIZE:
        return f"fixed {rungs[0][1]}"
    return ",".join(
        f"{'more' if largest >= UNBOUNDED_BATCH_SIZE else largest}:{length}"
        for largest, length in rungs
    )


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _rungs(rungs: list[list[int]]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table("decoding sequences", "tokens drafted", box=box.SIMPLE)
    smallest = 1
    for largest, length in rungs:
        unbounded = largest >= UNBOUNDED_BATCH_SIZE
        span = str(largest) if smallest == largest else f"{smallest} to {largest}"
        table.add_row("any" if unbounded else span, str(length))
        smallest = largest + 1
    if smallest <= UNBOUNDED_BATCH_SIZE:
        table.add_row("any" if smallest == 1 else f"{smallest} or more", "0")
    return table


def _replicas(replicas: list[dict[str, Any]]) -> "Table":
    from rich import box
    from rich.table import Table

    columns = ("replica", "in force", "seen", "state", "drafted", "accepted", "emitted")
    table = Table(*columns, box=box.SIMPLE)
    for replica in replicas:
        drafted, accepted = replica.get("drafted_tokens", 0), replica.get("accepted_tokens", 0)
        share = f" ({accepted / drafted:.0%})" if drafted else ""
        table.add_row(
            str(replica["replica_id"]),
            f"version {replica['version_in_force']}",
            f"{replica['seen_s_ago']:.0f} s ago",
            str(replica.get("stage", "")),
            str(drafted),
            f"{accepted}{share}",
            str(replica.get("emitted_tokens", 0)),
        )
    return table


def source_in_words(source: str) -> str:
    """Where a table comes from."""
    words = {"config": "from the configuration", "hand": "set by hand", "measured": "measured"}
    return words.get(source, source)


def _age(set_at_unix_s: float) -> str:
    if not set_at_unix_s:
        return "since the start"
    age_s = max(0.0, time.time() - set_at_unix_s)
    for unit, seconds in (("h", 3600), ("min", 60)):
        if age_s >= 2 * seconds:
            return f"{age_s / seconds:.0f} {unit} ago"
    return f"{age_s:.0f} s ago"
