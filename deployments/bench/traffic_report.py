"""The document and the Markdown of runs with traffic, of traces too."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deployments.bench.answers import Percentiles, Slo, Summary
from deployments.bench.arms import ADAPTIVE
from deployments.bench.markdown import goals_table, table, where
from deployments.bench.results import write_results
from deployments.bench.traffic_plots import plot_bars, plot_timeline
from deployments.bench.traffic_results import SettingResult, goals, lower_by

_LATE_S = 0.05
"""A client that is later than that with one request of a hundred is part of what it measures."""


def write_report(
    folder: Path,
    plan: Mapping[str, Any],
    results: Sequence[SettingResult],
    slo: Slo,
    static: Mapping[str, Any] | None,
    *,
    is_complete: bool,
) -> Path:
    """JSON, Markdown and pictures of what was measured; the Markdown's path. Raises OSError."""
    name = plan["benchmark"]
    document = as_document(plan, results, slo, static, is_complete=is_complete)
    write_results(folder / f"{name}.json", document)
    bars = folder / f"{name}-latency.png"
    plot_bars(results, bars)
    timelines: list[Path] = []
    for one in results:
        if one.setting.phases:
            timelines.append(folder / f"{name}-timeline-{len(timelines) + 1}.png")
            plot_timeline(one, timelines[-1])
    path = folder / f"{name}.md"
    path.write_text(as_markdown(document, results, slo, [bars, *timelines]))
    return path


def as_document(
    plan: Mapping[str, Any],
    results: Sequence[SettingResult],
    slo: Slo,
    static: Mapping[str, Any] | None,
    *,
    is_complete: bool,
) -> dict[str, Any]:
    """Everything in JSON's types; `plan` holds the environment."""
    return {
        "benchmark": plan["benchmark"],
        "environment": plan["environment"],
        "plan": {key: value for key, value in plan.items() if key != "environment"},
        "is_complete": is_complete,
        "slo": asdict(slo),
        "static_table": static,
        "settings": [one.as_json(slo) for one in results],
        "goals": [asdict(goal) for goal in goals(results)],
    }


def as_markdown(
    document: Mapping[str, Any],
    results: Sequence[SettingResult],
    slo: Slo,
    pictures: Sequence[Path],
) -> str:
    """What a person reads."""
    plan = document["plan"]
    parts = [
        f"# {str(document['benchmark']).capitalize()}",
        where(document),
        f"Prompts: {plan['prompts']}. Latency, TTFT and TPOT are seconds, of whole answers, from "
        f"when a request was due. Goodput: requests a second that kept the SLO ({slo}). Ratio: "
        "adaptive's mean latency over this arm's (least to most over the segments).",
    ]
    if document["static_table"] is not None:
        rungs = document["static_table"]["table"].items()
        told = ", ".join(f"{size}: {length}" for size, length in rungs)
        parts.append(f"Static table (largest batch: draft length): {told}.")
    parts += [*map(str, plan.get("notes", ()))]
    for one in results:
        parts += [f"## {one.setting.name}", *_of_setting(one, slo)]
    if judged := goals(results):
        parts += ["## Goals", goals_table(judged)]
    parts += [*_over_all(results), *(f"![{path.stem}]({path.name})" for path in pictures), ""]
    return "\n\n".join(parts)


def _of_setting(result: SettingResult, slo: Slo) -> list[str]:
    rows = []
    late = 0.0
    failures: list[str] = []
    for arm, answers in result.answers.items():
        told = Summary.of(answers, slo)
        late = max(late, told.late.p99 if told.late else 0.0)
        failures += [f"{arm}: {count} x {error}" for error, count in told.errors.items()]
        ratio = (
            result.latency_ratio(ADAPTIVE, arm)
            if ADAPTIVE in result.answers and arm != ADAPTIVE
            else None
        )
        rows.append(
            (
                arm,
                *_seconds(told.latency, "mean", "p50", "p95", "p99"),
                *_seconds(told.ttft, "mean", "p95"),
                *_seconds(told.tpot, "mean", "p95"),
                f"{told.tokens_per_second:.1f}",
                f"{told.goodput:.2f} ({told.good_share:.0%})",
                "" if ratio is None else str(ratio),
            )
        )
    columns = ("arm", "mean", "p50", "p95", "p99", "TTFT", "its p95", "TPOT", "its p95")
    first = Summary.of(next(iter(result.answers.values())), slo)
    parts = len(next(iter(result.answers.values())))
    found = [
        f"{first.requests} requests in {parts} segments, {first.prompt_tokens:.0f} tokens in and "
        f"{first.new_tokens:.0f} out on average. The client was at most {1e3 * late:.0f} ms late "
        "with 99 of 100 requests."
        + (" **That is too late to trust the latencies.**" if late > _LATE_S else ""),
        table((*columns, "tokens/s", "goodput", "ratio"), rows),
    ]
    return found + ([f"Failed: {'; '.join(failures)}."] if failures else [])


def _over_all(results: Sequence[SettingResult]) -> list[str]:
    if not results or ADAPTIVE not in results[0].answers:
        return []
    others = [arm for arm in results[0].answers if arm != ADAPTIVE]
    told = [
        f"{100 * share:.1f} % below {arm}'s"
        for arm in others
        if (share := lower_by(results, ADAPTIVE, arm)) is not None
    ]
    failed = {arm: sum(one.num_failed(arm) for one in results) for arm in results[0].answers}
    lacking = [f"{arm}: {count}" for arm, count in failed.items() if count]
    without = f", without the requests that failed ({', '.join(lacking)})" if lacking else ""
    return [
        f"Over all settings (geometric mean) adaptive's mean latency is {', '.join(told)}{without}."
    ]


def _seconds(told: Percentiles | None, *names: str) -> list[str]:
    return ["-" if told is None else f"{getattr(told, name):.3f}" for name in names]
