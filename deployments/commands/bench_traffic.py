"""`paceline bench traffic` and `paceline bench trace`: load over HTTP, drawn or recorded."""

from pathlib import Path
from typing import Annotated

import typer

from deployments.commands.numbers import numbers, real_option
from deployments.commands.options import ApiKey
from engine.errors import ConfigError

DEFAULT_ARMS = "off,2,4,table,adaptive"
MOST_CV = 100.0
"""Coefficient of variation: beyond it hardly an interval is more than nought."""

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings of the application, as for `serve`.")
]
BaseUrl = Annotated[
    str | None,
    typer.Option(help="Measure this server instead, e.g. http://127.0.0.1:8000/v1: one arm."),
]
ServedModel = Annotated[
    str | None, typer.Option("--model", help="With --base-url: its model [default: its first].")
]
Tokenizer = Annotated[
    str | None,
    typer.Option(help="Model whose tokenizer fits prompts to lengths [default: the one served]."),
]
Arms = Annotated[
    str, typer.Option("--arms", help="off, adaptive, table, and draft lengths that are fixed.")
]
Table = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="BATCH:LENGTH,...|FILE",
        help="Of the arm table: lengths, or a characterize.json [default: what adaptive decides "
        "before the measurement].",
    ),
]
Prompts = Annotated[
    Path | None,
    typer.Option(help='JSONL with "turns" or "prompt" [default: 64 that come with Paceline].'),
]
Temperature = Annotated[float, real_option(min=0.0, max=2.0, help="0 is greedy.")]
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos/--no-ignore-eos", help="Answers have their whole length (not OpenAI's)."
    ),
]
Salt = Annotated[
    bool | None,
    typer.Option(
        "--salt/--no-salt",
        help="No prompt is found in a prefix cache: sends cache_salt (not OpenAI's) "
        "[default: without --base-url].",
    ),
]
WarmUp = Annotated[float, real_option(min=0.0, help="Seconds of traffic that don't count.")]
SloTtft = Annotated[float | None, real_option(min=0.0, help="Goodput: time to first token.")]
SloTpot = Annotated[float | None, real_option(min=0.0, help="Goodput: time per token after it.")]
SloLatency = Annotated[float | None, real_option(min=0.0, help="Goodput: time to the last token.")]
Timeout = Annotated[float, real_option(min=1.0, help="Seconds; a slower answer has failed.")]


def traffic(
    out: Annotated[Path, typer.Option(help="Folder of the results; a run there goes on.")] = Path(
        "out/traffic"
    ),
    intervals: Annotated[str, typer.Option(help="Mean seconds between requests.")] = "2,0.8,0.4",
    cvs: Annotated[str, typer.Option(help="Coefficients of variation: 0 clock, 1 Poisson.")] = (
        "0.5,2"
    ),
    seconds: Annotated[float, real_option(min=0.01, help="Of arrivals in a segment.")] = 15.0,
    segments: Annotated[int, typer.Option(min=1, help="Of each traffic and arm.")] = 2,
    timeline: Annotated[
        str | None,
        typer.Option(help="Mean intervals of alternating phases; 'none' leaves it out."),
    ] = "0.4,2.5",
    timeline_cv: Annotated[
        float, real_option(min=0.0, max=MOST_CV, help="CV within its phases.")
    ] = 1.0,
    phase_seconds: Annotated[float, real_option(min=0.01, help="Of a phase.")] = 15.0,
    cycles: Annotated[int, typer.Option(min=1, help="Times through the phases.")] = 2,
    arrivals: Annotated[
        list[Path] | None,
        typer.Option(help="Replay these files (a run writes its own) instead of drawing any."),
    ] = None,
    new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each answer.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Of the arrivals.")] = 0,
    arms: Arms = DEFAULT_ARMS,
    table: Table = None,
    config_file: ConfigFile = None,
    base_url: BaseUrl = None,
    model: ServedModel = None,
    tokenizer: Tokenizer = None,
    api_key: ApiKey = None,
    prompts: Prompts = None,
    temperature: Temperature = 0.0,
    ignore_eos: IgnoreEos = True,
    salt: Salt = None,
    warm_up: WarmUp = 20.0,
    slo_ttft_ms: SloTtft = 1000.0,
    slo_tpot_ms: SloTpot = 50.0,
    slo_latency_ms: SloLatency = None,
    timeout: Timeout = 300.0,
) -> None:
    """Send requests when they are due, under several policies in turns on the same arrivals.

    Starts the application itself, or measures a server at --base-url. Writes traffic.json,
    traffic.md, pictures and the arrivals. Ctrl-C keeps what was measured, and the same command goes
    on from there.
    """
    from deployments.bench.answers import Slo
    from deployments.bench.arrivals import Setting, gamma_setting, phased_setting, read_arrivals
    from deployments.commands.bench_session import Session, run_session

    settings: list[Setting] = []
    if arrivals:
        settings = [read_arrivals(path) for path in arrivals]
    else:
        for interval_s in numbers(intervals, "--intervals", 0.001):
            for cv in numbers(cvs, "--cvs", 0.0, MOST_CV):
                settings.append(
                    gamma_setting(
                        interval_s,
                        cv,
                        seconds=seconds,
                        segments=segments,
                        new_tokens=new_tokens,
                        seed=seed,
                    )
                )
        if timeline not in (None, "none"):
            settings.append(
                phased_setting(
                    numbers(timeline, "--timeline", 0.001),
                    timeline_cv,
                    phase_s=phase_seconds,
                    cycles=cycles,
                    new_tokens=new_tokens,
                    seed=seed,
                )
            )
    run_session(
        Session(
            benchmark="traffic",
            out=out,
            settings=settings,
            arms=arms,
            table=table,
            config_file=config_file,
            base_url=base_url,
            model=model,
            tokenizer=tokenizer,
            api_key=api_key,
            prompts=prompts,
            temperature=temperature,
            ignore_eos=ignore_eos,
            salt=salt,
            warm_up_s=warm_up,
            slo=Slo(_seconds(slo_ttft_ms), _seconds(slo_tpot_ms), _seconds(slo_latency_ms)),
            timeout_s=timeout,
            plan={} if arrivals else {"seed": seed},
        )
    )


def trace(
    trace_file: Annotated[
        Path, typer.Argument(metavar="TRACE.csv", help="TIMESTAMP,ContextTokens,GeneratedTokens.")
    ],
    slowdown: Annotated[
        float, real_option(min=1e-6, help="What the trace's times are multiplied by.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the results; a run there goes on.")] = Path(
        "out/trace"
    ),
    start: Annotated[float, real_option(min=0.0, help="Seconds of the trace to skip.")] = 0.0,
    seconds: Annotated[float, real_option(min=1.0, help="Of a segment, on our clock.")] = 60.0,
    segments: Annotated[int, typer.Option(min=1, help="Pieces, one behind the other.")] = 2,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=2, help="Leave longer requests out [default: 4096]."),
    ] = None,
    arms: Arms = DEFAULT_ARMS,
    table: Table = None,
    config_file: ConfigFile = None,
    base_url: BaseUrl = None,
    model: ServedModel = None,
    tokenizer: Tokenizer = None,
    api_key: ApiKey = None,
    prompts: Prompts = None,
    temperature: Temperature = 0.0,
    ignore_eos: IgnoreEos = True,
    salt: Salt = None,
    warm_up: WarmUp = 20.0,
    slo_ttft_ms: SloTtft = 5000.0,
    slo_tpot_ms: SloTpot = 100.0,
    slo_latency_ms: SloLatency = None,
    timeout: Timeout = 600.0,
) -> None:
    """Replay one of Azure's traces of LLM inference, slowed down until it fits the machine.

    Prompts and answers have the trace's lengths; what is asked is made of --prompts. The report is
    that of `traffic`, in trace.json and trace.md.
    """
    from deployments.bench.answers import Slo
    from deployments.bench.azure import Slice, read_trace
    from deployments.commands.bench_session import Session, run_session

    if not ignore_eos:
        raise ConfigError("--no-ignore-eos: a trace's answers have lengths, which it would lose")
    most = max_tokens or 4096
    setting, left_out = read_trace(
        trace_file, Slice(start, slowdown, seconds, segments, max_tokens=most)
    )
    run_session(
        Session(
            benchmark="trace",
            out=out,
            settings=[setting],
            arms=arms,
            table=table,
            config_file=config_file,
            base_url=base_url,
            model=model,
            tokenizer=tokenizer,
            api_key=api_key,
            prompts=prompts,
            temperature=temperature,
            ignore_eos=ignore_eos,
            salt=salt,
            warm_up_s=warm_up,
            slo=Slo(_seconds(slo_ttft_ms), _seconds(slo_tpot_ms), _seconds(slo_latency_ms)),
            timeout_s=timeout,
            plan={"slowdown": slowdown, "start_s": start},
            notes=(
                f"{trace_file.name}, from its second {start:g} on, {slowdown:g} times slower: "
                f"{left_out} requests of more than {most} tokens were left out.",
            ),
        )
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
