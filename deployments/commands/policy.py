"""`paceline policy show|set`: the speculation policy of a running application."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import ConfigError
from policy.choice import parse_choice
from policy.quoting import shown
from policy.table import UNBOUNDED_BATCH_SIZE

if TYPE_CHECKING:
    from rich.table import Table

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT_S = 30.0
TAKEN_OVER_S = 3.0
"""A replica between two steps reports within a fraction of this."""
POLL_S = 0.1
MAX_REASON_CHARACTERS = 400
"""How much is shown of another server's error message."""

policy_app = typer.Typer(
    help="Show or set how many tokens are drafted at which batch size.", no_args_is_help=True
)

Url = Annotated[str, typer.Option(help="Where the application answers.")]


@policy_app.command()
def show(url: Url = DEFAULT_URL) -> None:
    """Show the table in force, where it comes from, and what it does on each replica."""
    _print(_ask("GET", url))


@policy_app.command("set")
def set_(
    mode: Annotated[str, typer.Argument(metavar="off|fixed|table")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="K|'BATCH:LENGTH,...'", help="For fixed: 4. For table: 1:5,8:2."),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Set the policy: off, fixed K, or table '1:5,4:3,16:1'."""
    _print(_taken_over(url, _ask("PUT", url, {"policy": read_policy(mode, value)})))


def _taken_over(url: str, described: dict[str, Any]) -> dict[str, Any]:
    """The answer once every replica reports the table in force, or after a short while."""
    version = described["table"]["version"]
    deadline_s = time.monotonic() + TAKEN_OVER_S
    while (
        any(replica["version_in_force"] < version for replica in described["replicas"])
        and time.monotonic() < deadline_s
    ):
        time.sleep(POLL_S)
        described = _ask("GET", url)
    return described


def read_policy(mode: str, value: str | None) -> str | dict[str, Any]:
    """The policy that the command's words mean. Raises ConfigError.

    >>> read_policy("table", "1:5,8:2")
    {'table': {'1': 5, '8': 2}}
    """
    if mode not in ("off", "fixed", "table"):
        raise ConfigError(
            f"policy must be off, fixed K or table BATCH:LENGTH,..., got {shown(mode)}"
        )
    if mode == "off":
        if value is not None:
            raise ConfigError(f"policy off takes no value, got {shown(value)}")
        return "off"
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


def _ask(method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The application's answer. Raises ConfigError in one line when there is none, or a refusal."""
    import httpx

    try:
        answer = httpx.request(
            method, f"{url.rstrip('/')}/policy", json=body, timeout=TIMEOUT_S, trust_env=False
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"--url: no answer from {url}: {error}") from None
    try:
        described = answer.json()
    except ValueError:
        described = None
    if (
        answer.status_code == httpx.codes.OK
        and isinstance(described, dict)
        and "table" in described
    ):
        return described
    raise ConfigError(f"{url} answered {answer.status_code}: {_reason(described, answer.text)}")


def _reason(described: object, text: str) -> str:
    error = described.get("error") if isinstance(described, dict) else None
    if isinstance(error, dict) and "message" in error:
        return " ".join(str(error["message"]).split())[:MAX_REASON_CHARACTERS]
    return f"not Paceline, or not ready ({' '.join(text.split())[:80]!r})"


def _print(described: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    table = described["table"]
    console.print(
        f"Policy [bold]{table['mode']}[/bold], version {table['version']}, "
        f"{_source(table['source'])}, {_age(table['set_at_unix_s'])}"
    )
    console.print(_rungs(table["rungs"]))
    console.print(_replicas(described["replicas"]))
    actor = described.get("policy_actor", {})
    if not actor.get("reachable", True):
        heard = actor.get("heard_s_ago")
        since = "never heard from" if heard is None else f"last heard from {heard:.0f} s ago"
        console.print(f"The policy actor is being restarted ({since}); replicas keep their table.")


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


def _source(source: str) -> str:
    return {"config": "from the configuration", "hand": "set by hand"}.get(source, source)


def _age(set_at_unix_s: float) -> str:
    if not set_at_unix_s:
        return "since the start"
    age_s = max(0.0, time.time() - set_at_unix_s)
    for unit, seconds in (("h", 3600), ("min", 60)):
        if age_s >= 2 * seconds:
            return f"{age_s / seconds:.0f} {unit} ago"
    return f"{age_s:.0f} s ago"
