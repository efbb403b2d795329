"""`paceline calibrate`: what a step costs on this machine, and the table that follows from it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deployments.commands.numbers import real_option
from deployments.commands.terminal import INTERRUPTED, Terminal

if TYPE_CHECKING:
    from deployments.config import AppConfig
    from engine.calibrate.kind import Kind
    from engine.config import EngineConfig
    from policy.cost import Calibration

_LINE_EVERY_S = 10.0


def calibrate(
    config_file: Annotated[
        Path | None,
        typer.Option("--config", help="Settings, as for `serve`; without it, the defaults."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model instead: a name, a folder or a hub name.")
    ] = None,
    drafter: Annotated[
        Literal["auto", "ngram"] | None,
        typer.Option(help="Who drafts instead: auto takes the draft in the model's folder."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure what is known already.")] = False,
    acceptance: Annotated[
        float | None,
        real_option(
            min=0.0,
            max=1.0,
            help="Assumed share of draft tokens that are kept, of those whose forerunners were "
            "[default: what an engine assumes before it has seen any].",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw time per token by batch size and length, as PNG.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results here.")
    ] = None,
) -> None:
    """Measure target passes and drafting by batch size, draft length and context.

    What is measured is kept and used by every engine of this kind on this machine; an adaptive
    policy needs nothing of this, as the first of its replicas measures by itself. Ctrl-C stops
    and keeps nothing. The table shown holds for one assumed acceptance; in service it follows what
    is kept.
    """
    from deployments.commands.calibrate_report import CalibrationReport, assumed
    from deployments.models.cache import default_home
    from engine.calibrate.cache import load, store
    from engine.errors import ConfigError

    for path in (json_file, plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.absolute().parent}")
    config = _config(config_file, model, drafter).engine_config()
    folder, kind = default_home() / "calibration", _kind(config)
    found = None if again else load(folder, kind.key)
    if found is None:
        found = _measure(config)
        if store(folder, kind.key, found, description=kind.description):
            typer.echo(f"Kept in {folder / kind.key}.json", err=True)
    else:
        typer.echo("Measured before; --again measures anew.", err=True)
    report = CalibrationReport(
        kind=kind,
        calibration=found,
        acceptance=assumed(acceptance, config.max_draft_len),
        max_batch=config.max_num_seqs,
        max_len=config.max_draft_len,
    )
    report.show()
    if json_file is not None:
        from engine.files import write_json

        write_json(json_file, report.as_json(), indent=1)
    if plot is not None:
        from engine.calibrate.plot import plot_calibration

        plot_calibration(found, report.acceptance, plot)


def _config(
    config_file: Path | None, model: str | None, drafter: Literal["auto", "ngram"] | None
) -> "AppConfig":
    from deployments.config import AppConfig, load_config
    from deployments.config import DrafterSection as Drafter

    config = AppConfig() if config_file is None else load_config(config_file)
    if model is not None:
        config = config.model_copy(update={"model": model})
    if drafter is not None:
        config = config.model_copy(update={"drafter": Drafter(kind=drafter)})
    return config


def _kind(config: "EngineConfig") -> "Kind":
    from engine.calibrate.kind import machine_kind
    from engine.errors import ConfigError

    try:
        return machine_kind(config)
    except OSError as error:
        raise ConfigError(f"model {config.model}: can't be read: {error}") from error


def _measure(config: "EngineConfig") -> "Calibration":
    """Raises typer.Exit when a person stops it."""
    from engine.build import build_engine
    from engine.calibrate.grid import default_grid
    from engine.calibrate.measure import calibrate
    from engine.calibrate.survey import CalibrationStopped
    from policy.table import SpeculationTable

    default_grid(config, config.max_model_len or 2**31)  # what is wrong is said before loading
    terminal = Terminal(line_every_s=_LINE_EVERY_S)
    engine = build_engine(config, SpeculationTable(0, ()), terminal.stage)
    try:
        grid = default_grid(config, engine.max_model_len)
        with terminal:
            return calibrate(
                engine,
                grid,
                report=lambda done, total, what: terminal.progress("measuring", done / total, what),
                stopped=lambda: terminal.stopped,
            )
    except CalibrationStopped:
        terminal.say("Stopped; nothing is kept.")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        engine.close()
