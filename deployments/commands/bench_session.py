"""A run of traffic from its options to its report: the server, the turns, what is kept."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from deployments.bench.answers import Slo
from deployments.bench.app import App, Running
from deployments.bench.arms import SERVER, TABLE, Arm, read_arms, read_static_table
from deployments.bench.arrivals import Setting, gamma_setting, write_arrivals
from deployments.bench.client import Client, Stopped
from deployments.bench.prompts import Fitting, read_texts
from deployments.bench.traffic import Body, Measuring, answers_of, static_table, turns
from deployments.bench.traffic_report import write_report
from deployments.bench.traffic_results import SettingResult
from deployments.bench.work import Work
from deployments.commands.options import bearer
from deployments.commands.terminal import INTERRUPTED, Terminal
from deployments.config import AppConfig, load_config
from engine.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_LINE_EVERY_S = 10.0
_WARM_UP_TOKENS = 64
_WARM_UP_SEED = 2**31
"""None of a run's own arrivals."""


@dataclass(frozen=True, slots=True)
class Session:
    """What was asked for. Names are those of the options."""

    benchmark: str
    out: Path
    settings: Sequence[Setting]
    arms: str
    table: str | None
    config_file: Path | None
    base_url: str | None
    model: str | None
    tokenizer: str | None
    api_key: str | None
    prompts: Path | None
    temperature: float
    ignore_eos: bool
    salt: bool | None
    warm_up_s: float
    slo: Slo
    timeout_s: float
    plan: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def run_session(session: Session) -> None:
    """Measure what is missing, write the report and show it. Raises ConfigError, and typer.Exit
    when a person stops it."""
    arms = [Arm(SERVER, None)] if session.base_url else read_arms(session.arms)
    static = None
    if session.table is not None:
        if all(arm.name != TABLE for arm in arms):
            raise ConfigError("--table is for the arm table, which --arms lacks")
        static = read_static_table(session.table)
    if len({setting.name for setting in session.settings}) < len(session.settings):
        raise ConfigError("two kinds of traffic have the same name; name each once")
    texts = read_texts(session.prompts)
    config = None if session.base_url else _config(session)
    server = None if session.base_url is None else Running(session.base_url.rstrip("/"))
    headers = bearer(session.api_key)
    name = _model_name(session, config, server, headers)
    fitting = Fitting(texts, _tokenizer(session, config))
    salted = config is not None if session.salt is None else session.salt
    plan = plan_of(session, arms, config, name, texts, static, salted=salted)
    work = Work(session.out, plan)
    for setting in session.settings:
        file = "".join(c if c.isalnum() or c in "._-" else "-" for c in setting.name)
        write_arrivals(session.out / f"arrivals-{file}.csv", setting)
    left = [turn for turn in turns(session.settings, arms) if turn.key not in work]
    terminal = Terminal(
        line_every_s=_LINE_EVERY_S, on_stop="Stopping; what was measured so far is kept."
    )
    if left:
        minutes = sum(t.setting.segments[t.segment][-1].at_s for t in left) / 60
        terminal.say(f"{len(left)} turns, {minutes:.0f} min of arrivals, and their answers' ends.")
    body = Body(name, session.temperature, session.ignore_eos, salted=salted)
    total = len(list(turns(session.settings, arms)))

    def report(what: str, share: float) -> None:
        terminal.progress("measuring", (total - len(left) + share) / total, what)

    if left:
        with terminal, _served(session, config, server, terminal) as running:
            if running is not None:
                client = Client(running.api_url, headers, session.timeout_s)
                measuring = Measuring(
                    running, client, fitting, body, work, report, lambda: terminal.stopped
                )
                _measure(session, measuring, left, static, lambda: terminal.stopped)
    results = [
        result
        for setting in session.settings
        if (
            result := SettingResult.of(
                setting, {arm.name: answers_of(work, setting, arm) for arm in arms}
            )
        )
    ]
    if results:
        path = write_report(
            session.out,
            plan,
            results,
            session.slo,
            static_table(work) if any(arm.name == TABLE for arm in arms) else None,
            is_complete=not left,
        )
        typer.echo(path.read_text())
    else:
        typer.echo("No segment was answered by all arms yet.", err=True)
    if left:
        raise typer.Exit(INTERRUPTED)


def _model_name(
    session: Session, config: AppConfig | None, server: Running | None, headers: dict[str, str]
) -> str:
    if config is not None:
        return config.model_name
    assert server is not None
    return session.model or server.model(headers)


def _measure(
    session: Session,
    measuring: Measuring,
    left: list[Any],
    static: dict[str, Any] | None,
    stopped: Callable[[], bool],
) -> None:
    """Take turns off `left` until there are none, or a person wants no more."""
    try:
        measuring.warm_up(_warm_up_segment(session), static, sets_policy=not session.base_url)
        while left and not stopped():
            measuring.measure(left[0])
            del left[0]
    except Stopped:
        return


def _warm_up_segment(session: Session) -> Any:
    if not session.warm_up_s:
        return ()
    known = [s.interval_s for s in session.settings if s.interval_s is not None]
    interval_s = min(known, default=1.0)
    warm_up = gamma_setting(
        interval_s,
        1.0,
        seconds=session.warm_up_s,
        segments=1,
        new_tokens=_WARM_UP_TOKENS,
        seed=_WARM_UP_SEED,
    )
    return warm_up.segments[0]


@contextmanager
def _served(
    session: Session, config: AppConfig | None, server: Running | None, terminal: Terminal
) -> Iterator[Running | None]:
    """The server that is asked; None: a person wants no more. What we started is stopped."""
    if config is None:
        assert server is not None
        yield server
        return
    app = App(settings_of(config), config.server.port, session.out)
    try:
        started = time.monotonic()
        if not app.wait(terminal.say, lambda: terminal.stopped):
            yield None
            return
        terminal.say(f"The application answers after {time.monotonic() - started:.0f} s.")
        yield app.server
    finally:
        app.stop()


def _config(session: Session) -> AppConfig:
    """Of the application that is started."""
    if session.model is not None:
        raise ConfigError("--model is for --base-url; the application's is in --config")
    config = AppConfig() if session.config_file is None else load_config(session.config_file)
    return config.with_models_found()


def _tokenizer(session: Session, config: AppConfig | None) -> "PreTrainedTokenizerFast | None":
    """For prompts of given lengths; None where there is none to be had, or none is needed."""
    lengths = any(
        one.prompt_tokens is not None
        for setting in session.settings
        for segment in setting.segments
        for one in segment
    )
    named = session.tokenizer or (config.model if config is not None else None)
    if not lengths or named is None:
        return None
    from deployments.models.store import resolve_model
    from engine.model import load_tokenizer

    return load_tokenizer(resolve_model(named, key="--tokenizer"))


def plan_of(
    session: Session,
    arms: Sequence[Arm],
    config: AppConfig | None,
    model: str,
    texts: Sequence[str],
    static: dict[str, Any] | None,
    *,
    salted: bool,
) -> dict[str, Any]:
    """All that the figures depend on, so that a run never goes on with another's settings."""
    from deployments.bench.identity import drafter_settings, prompts_digest, weights_digest
    from deployments.bench.results import environment

    engine = None if config is None else config.engine_config()
    device = None if engine is None else engine.device
    return {
        "benchmark": session.benchmark,
        "model": model,
        "weights": None if engine is None else weights_digest(engine.model),
        "dtype": None if engine is None else engine.dtype,
        "device": device,
        "drafter": None if engine is None else engine.drafter.kind,
        "drafter_settings": None if engine is None else drafter_settings(engine.drafter),
        "arms": [arm.name for arm in arms],
        "static_table": static,
        "prompts": (
            f"{len(texts)} that come with Paceline"
            if session.prompts is None
            else f"{len(texts)} of {session.prompts.name}"
        ),
        "prompts_digest": prompts_digest(texts),
        "tokenizer": None if session.tokenizer is None else Path(session.tokenizer).name,
        "salted": salted,
        "timeout_s": session.timeout_s,
        "temperature": session.temperature,
        "ignore_eos": session.ignore_eos,
        "warm_up_s": session.warm_up_s,
        "traffic": [setting.digest for setting in session.settings],
        **session.plan,
        "notes": list(session.notes),
        "server": session.base_url if config is None else _told(config),
        "environment": environment(device),
    }


def settings_of(config: AppConfig) -> dict[str, Any]:
    """What was set, as a configuration file has it."""
    settings: dict[str, Any] = config.model_dump(mode="json", exclude_unset=True)
    if config.policy is not None:
        settings["policy"] = config.policy.setting
    return settings


def _told(config: AppConfig) -> dict[str, Any]:
    """Without paths, what says nothing of speed, and what the plan tells by itself."""
    skipped = ("model", "server", "policy", "drafter")
    return {key: value for key, value in settings_of(config).items() if key not in skipped}
