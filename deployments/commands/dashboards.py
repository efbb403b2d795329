"""`paceline dashboards`: the Grafana dashboard and alert rules, written to files or brought to a
Grafana."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.dashboard.names import DEFAULT_NAME, DEFAULT_PROMETHEUS_URL, Names, uid_of
from engine.errors import ConfigError
from policy.quoting import SHOWN_PATH_CHARACTERS, shown

if TYPE_CHECKING:
    from cluster.dashboard.grafana import Grafana
    from cluster.dashboard.plan import Step

MAX_TOKEN_CHARACTERS = 4096
MAX_NAME_CHARACTERS = 190
"""As long as Grafana takes a title."""

dashboards_app = typer.Typer(
    help="Write the Grafana dashboard and alert rules to files, or bring them to a Grafana.",
    no_args_is_help=True,
)

Url = Annotated[str, typer.Option(help="Of Grafana, such as http://127.0.0.1:3000.")]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="PACELINE_GRAFANA_TOKEN",
        show_envvar=True,
        show_default=False,
        help="Of a service account with the role Admin. Others on the machine can see it here: "
        "better in the environment or a file.",
    ),
]
TokenFile = Annotated[Path | None, typer.Option(help="A file that holds the token.")]
Folder = Annotated[str, typer.Option(help="Title of the folder in Grafana.")]
Datasource = Annotated[str, typer.Option(help="Name of the Prometheus data source in Grafana.")]
PrometheusUrl = Annotated[
    str,
    typer.Option(help="Where Grafana finds Prometheus, for a data source that is missing."),
]


@dashboards_app.command()
def render(
    out: Annotated[Path, typer.Option(help="Folder for the files.")],
    folder: Folder = DEFAULT_NAME,
    datasource: Datasource = DEFAULT_NAME,
) -> None:
    """Write the dashboard and the alert rules as JSON files that Grafana reads."""
    from cluster.dashboard.alerts import alert_rules_file
    from cluster.dashboard.dashboard import dashboard
    from engine.files import write_json

    files = {
        "paceline-dashboard.json": dashboard(),
        "paceline-alert-rules.json": alert_rules_file(
            _name("--folder", folder), uid_of(_name("--datasource", datasource))
        ),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_json(out / name, content, indent=2)
            typer.echo(f"wrote {out / name}")
    except OSError as error:
        where = shown(str(out), SHOWN_PATH_CHARACTERS)
        raise ConfigError(f"--out: can't write to {where}: {error.strerror or error}") from None


@dashboards_app.command()
def apply(
    url: Url,
    token: Token = None,
    token_file: TokenFile = None,
    folder: Folder = DEFAULT_NAME,
    datasource: Datasource = DEFAULT_NAME,
    prometheus_url: PrometheusUrl = DEFAULT_PROMETHEUS_URL,
) -> None:
    """Bring folder, data source (if missing), dashboard and alert rules to a Grafana.

    Can be repeated: what is there already stays as it is.
    """
    from cluster.dashboard.dashboard import UID
    from cluster.dashboard.grafana import Grafana, parts_of
    from cluster.dashboard.plan import Found, plan_apply

    parts_of(prometheus_url, "--prometheus-url")
    grafana = Grafana(url, read_token(token, token_file))
    names = Names(_name("--folder", folder), _name("--datasource", datasource), prometheus_url)
    if not _carry_out(plan_apply(names, Found.read(grafana)), grafana):
        typer.echo("Nothing to change.")
    typer.echo(f"{grafana.url}/d/{UID}")


@dashboards_app.command()
def delete(
    url: Url,
    token: Token = None,
    token_file: TokenFile = None,
    folder: Folder = DEFAULT_NAME,
) -> None:
    """Delete alert rules and dashboard, and the folder if it was made here and is empty.

    The data source stays: others may use it by now.
    """
    from cluster.dashboard.grafana import Grafana
    from cluster.dashboard.plan import Found, plan_delete, plan_delete_folder

    grafana = Grafana(url, read_token(token, token_file))
    names = Names(_name("--folder", folder))
    changed = _carry_out(plan_delete(Found.read(grafana)), grafana)
    # Only now it shows whether the folder is empty.
    held = grafana.holds(uid_of(names.folder))
    changed += _carry_out(plan_delete_folder(names, Found.read(grafana), held), grafana)
    if not changed:
        typer.echo("Nothing to delete.")


def read_token(token: str | None, token_file: Path | None) -> str:
    """From the file, else the option or the environment. Raises ConfigError, without showing it."""
    if token_file is not None:
        try:
            with token_file.open("rb") as file:
                token = file.read(MAX_TOKEN_CHARACTERS + 1).decode("utf-8", "replace")
        except OSError as error:
            where = shown(str(token_file), SHOWN_PATH_CHARACTERS)
            reason = error.strerror or error
            raise ConfigError(f"--token-file: can't read {where}: {reason}") from None
    token = (token or "").strip()
    if not token:
        raise ConfigError(
            "--token, PACELINE_GRAFANA_TOKEN or --token-file must give a token of a service account"
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError("--token must be printable ASCII characters without blanks")
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise ConfigError(f"--token must have at most {MAX_TOKEN_CHARACTERS} characters")
    return token


def _name(option: str, name: str) -> str:
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARACTERS:
        raise ConfigError(
            f"{option} must be a name of 1 to {MAX_NAME_CHARACTERS} characters, got {shown(name)}"
        )
    return name.strip()


def _carry_out(steps: "Iterable[Step]", grafana: "Grafana") -> int:
    """Number of changes. Each step is told once it is done: after a failure it is known how far
    it went."""
    changes = 0
    for step in steps:
        if step.act is not None:
            step.act(grafana)
            changes += 1
        typer.echo(f"{step.outcome:9} {step.what}")
    return changes
