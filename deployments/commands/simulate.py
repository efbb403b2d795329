"""`paceline simulate`: what a policy would do on up to thousands of replicas, before they are
bought."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deployments.commands.numbers import real_option
from deployments.commands.terminal import INTERRUPTED, Terminal

if TYPE_CHECKING:
    from deployments.simulate.traffic import Arrival

_LINE_EVERY_S = 10.0
_MOST_REPLICAS = 10_000


def simulate(
    cost: Annotated[
        str,
        typer.Option(help="What steps cost: a100-7b, h100-70b-tp4, or a file with a calibration."),
    ],
    replicas: Annotated[int, typer.Option(min=1, max=_MOST_REPLICAS)] = 1,
    gamma: Annotated[
        str | None, typer.Option(help="MEAN,CV of the seconds between requests.", metavar="M,CV")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="CSV instead: TIMESTAMP, ContextTokens, GeneratedTokens."),
    ] = None,
    rate: Annotated[
        float | None, real_option(help="Requests a second on average: a trace's time is scaled.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="How many [default: 1000, or the trace's].")
    ] = None,
    day: Annotated[
        float,
        real_option(
            min=0.0, max=0.99, help="Swing of the rate over the run as over a day; 0: none."
        ),
    ] = 0.0,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="With --gamma.")] = 128,
    new_tokens: Annotated[int, typer.Option(min=1, help="With --gamma.")] = 128,
    draft: Annotated[
        str | None, typer.Option(help="Draft model of a GPU's profile, by name.")
    ] = None,
    acceptance: Annotated[
        str, typer.Option(help="Chance of a draft token whose forerunners were right, by position.")
    ] = "0.7",
    spread: Annotated[
        float, real_option(min=0.0, max=0.5, help="Its standard deviation over requests.")
    ] = 0.0,
    arms: Annotated[str, typer.Option(help="Policies to compare.")] = (
        "off,fixed-2,fixed-4,table,adaptive"
    ),
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Sequences that a replica runs at once.")
    ] = None,
    slo_ttft: Annotated[float, real_option(help="Objective: seconds to the first token.")] = 2.0,
    slo_tpot_ms: Annotated[float, real_option(help="Objective: ms a token after it.")] = 50.0,
    slo_share: Annotated[
        float, real_option(min=0.0, max=1.0, help="Of the requests that must keep both.")
    ] = 0.95,
    search: Annotated[
        bool,
        typer.Option(
            "--search", help="Find how few replicas, without scaling, keep the objective, too."
        ),
    ] = False,
    max_replicas: Annotated[
        int, typer.Option(min=0, max=_MOST_REPLICAS, help="Scale up to so many by load; 0: don't.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of arrivals and of luck.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results here.")
    ] = None,
    report_folder: Annotated[
        Path | None, typer.Option("--report", help="Write report.md and its pictures here.")
    ] = None,
) -> None:
    """Run the same arrivals on simulated replicas under each policy.

    Scheduler, policy, router and autoscaling are those that serve; in the place of a model stand
    formulas of what its passes take. Ctrl-C ends it, and what was simulated is reported.
    """
    from rich.console import Console
    from rich.table import Table

    from deployments.autoscaling.decision import Targets
    from deployments.simulate.arms import parse_acceptance, parse_arms
    from deployments.simulate.costs import profile_of
    from deployments.simulate.fleet import Scaling
    from deployments.simulate.outcome import Slo
    from deployments.simulate.report import (
        BRIEF,
        about,
        environment,
        header,
        rows,
        slo_json,
    )
    from deployments.simulate.run import Settings, Stopped, replicas_needed
    from deployments.simulate.run import simulate as run
    from engine.errors import ConfigError

    for name, value in (("--slo-ttft", slo_ttft), ("--slo-tpot-ms", slo_tpot_ms)):
        if not value > 0:
            raise ConfigError(f"{name} must be above 0, got {value:g}")
    names = parse_arms(arms)
    luck = parse_acceptance(acceptance, spread, seed)
    profile = profile_of(cost, draft=draft, max_num_seqs=max_num_seqs)
    arrivals, what = _arrivals(
        gamma, trace, rate, requests, day, prompt_tokens, new_tokens, seed, profile.max_model_len
    )
    _require_places(json_file, report_folder)
    scaling = None
    if max_replicas:
        targets = Targets(
            min_replicas=1,
            max_replicas=max_replicas,
            target_tpot_ms=slo_tpot_ms,
            target_ttft_ms=1e3 * slo_ttft,
        )
        scaling = Scaling(targets, targets.start_s)
    slo = Slo(slo_ttft, slo_tpot_ms / 1e3, slo_share)
    settings = Settings(profile, arrivals, luck, replicas, slo, seed, scaling)
    count = len(arrivals)
    document: dict[str, Any] = {
        "environment": environment(),
        "profile": about(profile),
        "replicas": replicas,
        "traffic": {
            "what": what,
            "requests": count,
            "per_s": count / max(arrivals[-1].at_s, 1e-9),
            "prompt_tokens": sum(one.prompt_tokens for one in arrivals) / count,
            "new_tokens": sum(one.new_tokens for one in arrivals) / count,
        },
        "acceptance": acceptance,
        "spread": spread,
        "seed": seed,
        "slo": slo_json(slo),
        "is_complete": False,
        "arms": {},
    }
    found: dict[str, dict[str, Any]] = document["arms"]
    points: dict[str, list[tuple[float, float]]] = {}
    terminal = Terminal(line_every_s=_LINE_EVERY_S)

    def report(name: str, share: float) -> None:
        if terminal.stopped:
            raise Stopped
        terminal.progress(name, share, "")

    try:
        with terminal:
            for arm in names:
                into: dict[str, Any] = {}
                try:
                    fleet = run(settings, arm, report, into)
                    points[arm] = fleet.outcomes.points()
                    if search:
                        most = _MOST_REPLICAS
                        into["replicas_needed"] = replicas_needed(settings, arm, report, most)
                finally:
                    if into:
                        found[arm] = into
        document["is_complete"] = True
    except Stopped:
        terminal.say("Stopped; what was simulated so far follows.")
    table = Table(title=f"{profile.name}, {replicas} replicas, {count} requests")
    for index in BRIEF:
        table.add_column(header()[index], justify="right")
    for row in rows(found):
        table.add_row(*(row[index] for index in BRIEF))
    Console().print(table)
    if json_file is not None:
        from engine.files import write_json

        write_json(json_file, document, indent=1)
    if report_folder is not None:
        _write_report(report_folder, document, points)
    if not document["is_complete"]:
        raise typer.Exit(INTERRUPTED)


def _arrivals(
    gamma: str | None,
    trace: Path | None,
    rate: float | None,
    requests: int | None,
    day: float,
    prompt_tokens: int,
    new_tokens: int,
    seed: int,
    max_model_len: int,
) -> "tuple[list[Arrival], str]":
    """And what they are, in words. Raises ConfigError."""
    from deployments.simulate import traffic
    from engine.errors import ConfigError

    if (gamma is None) == (trace is None):
        raise ConfigError("--gamma or --trace must be given, and one of them only")
    if rate is not None and not rate > 0:
        raise ConfigError(f"--rate must be above 0, got {rate:g}")
    if gamma is not None:
        mean_s, cv = _pair(gamma)
        count = requests or 1000
        arrivals = traffic.gamma(mean_s, cv, count, prompt_tokens, new_tokens, seed)
        what = f"Gamma intervals of {mean_s:g} s with CV {cv:g}"
    else:
        assert trace is not None
        recorded = traffic.read_trace(trace)
        arrivals = traffic.repeated(recorded, requests or len(recorded))
        what = f"the trace {trace.stem}"
    if rate is not None:
        before = len(arrivals) / max(arrivals[-1].at_s, 1e-9)
        arrivals = traffic.at_rate(arrivals, rate)
        what += f", {rate / before:.4g} times as fast"
    if day:
        arrivals = traffic.over_a_day(arrivals, day)
        what += f", with the rate of a day (swing {day:g}) over {arrivals[-1].at_s:.0f} s"
    fitting, num_cut = traffic.fitting(arrivals, max_model_len)
    if num_cut:
        what += f", {num_cut} of them cut to the context limit of {max_model_len} tokens"
    return fitting, what


def _require_places(json_file: Path | None, report_folder: Path | None) -> None:
    """Before anything is simulated: a run may take hours. Makes the report's folder. Raises
    ConfigError."""
    from engine.errors import ConfigError

    if json_file is not None:
        folder = json_file.absolute().parent
        if not folder.is_dir():
            raise ConfigError(f"--json {json_file}: there is no folder {folder}")
        if json_file.is_dir():
            raise ConfigError(f"--json {json_file}: is a folder; name a file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"--json {json_file}: {folder} can't be written in")
    if report_folder is not None:
        try:
            report_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--report {report_folder}: can't be made a folder: {error.strerror or error}"
            ) from None
        if not os.access(report_folder, os.W_OK | os.X_OK):
            raise ConfigError(f"--report {report_folder}: can't be written in")


def _pair(text: str) -> tuple[float, float]:
    from engine.errors import ConfigError

    try:
        mean_s, cv = (float(part) for part in text.split(","))
    except ValueError:
        mean_s = cv = 0.0
    if not (0 < mean_s < 1e6 and 0.01 <= cv <= 100):
        raise ConfigError(
            f"--gamma must be MEAN,CV with seconds above 0 and a CV from 0.01 to 100, got {text!r}"
        )
    return mean_s, cv


def _write_report(
    folder: Path, document: dict[str, Any], points: dict[str, list[tuple[float, float]]]
) -> None:
    from deployments.simulate.plot import plot_latencies, plot_times
    from deployments.simulate.report import markdown
    from engine.files import replacing

    pictures = ["latency.png"]
    plot_latencies(document["arms"], folder / "latency.png")
    if points:
        pictures.append("times.png")
        plot_times(points, folder / "times.png")
    with replacing(folder / "report.md") as file:
        file.write(markdown(document, pictures).encode())
