"""What a simulation says: as JSON, as Markdown, in a terminal."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deployments.revision import commit
from deployments.simulate.costs import Profile
from deployments.simulate.outcome import Slo

_PACKAGES = ("paceline", "ray", "numpy")
COLUMNS = (
    ("mean, s", "latency_s", "mean"),
    ("p50", "latency_s", "p50"),
    ("p95", "latency_s", "p95"),
    ("p99", "latency_s", "p99"),
    ("TTFT p95, s", "ttft_s", "p95"),
    ("TPOT p95, ms", "tpot_s", "p95"),
)


def environment() -> dict[str, Any]:
    """Versions, commit and machine of this run."""
    return {
        "versions": {package: version(package) for package in _PACKAGES},
        "commit": commit(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def about(profile: Profile) -> dict[str, Any]:
    """A profile, without what follows from it."""
    return {
        "name": profile.name,
        "max_num_seqs": profile.max_num_seqs,
        "max_step_tokens": profile.max_step_tokens,
        "max_draft_len": profile.max_draft_len,
        "num_blocks": profile.num_blocks,
        "max_model_len": profile.max_model_len,
        **profile.about,
    }


def rows(arms: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A line for each arm."""
    found = []
    for name, told in arms.items():
        line = [name, str(told["answered"]), str(told["refused"])]
        for _, figure, part in COLUMNS:
            values = told[figure]
            scale = 1e3 if figure == "tpot_s" else 1.0
            line.append("-" if values is None else f"{scale * values[part]:.3g}")
        line += [
            f"{told['slo_attainment']:.1%}",
            f"{told['goodput_per_s']:.4g}",
            f"{told['tokens_per_round']:.2f}",
        ]
        needed = told.get("replicas_needed")
        line.append("-" if needed is None else str(needed))
        found.append(line)
    return found


BRIEF = (0, 1, 3, 5, 8, 9, 12)
"""Columns for a terminal."""


def header() -> list[str]:
    return [
        "policy",
        "answered",
        "refused",
        *(name for name, _, _ in COLUMNS),
        "in SLO",
        "goodput, req/s",
        "tokens/round",
        "replicas for SLO",
    ]


def markdown(document: Mapping[str, Any], pictures: Sequence[str]) -> str:
    """The whole report."""
    profile, traffic, slo = document["profile"], document["traffic"], document["slo"]
    arms: Mapping[str, Mapping[str, Any]] = document["arms"]
    lines = [
        f"# Simulation: {profile['name']}, {document['replicas']} replicas",
        "",
        f"{traffic['requests']} requests, {traffic['what']}; on average {traffic['per_s']:.4g} a "
        f"second, {traffic['prompt_tokens']:.0f} tokens in and {traffic['new_tokens']:.0f} out. "
        f"Draft tokens are right with probability {document['acceptance']}. Seed "
        f"{document['seed']}. Objective: first token within {slo['ttft_s']:g} s and "
        f"{1e3 * slo['tpot_s']:g} ms a token after it, for {slo['share']:.0%} of the requests.",
        "",
    ]
    if not document["is_complete"]:
        lines += ["**Stopped before the end**: what had been simulated until then.", ""]
    lines += [_line(header()), _line(["---"] * len(header()))]
    lines += [_line(row) for row in rows(arms)]
    lines += ["", *(f"![{Path(name).stem}]({name})" for name in pictures), ""]
    for name, told in arms.items():
        actor = told["policy_actor"]
        lines.append(
            f"- {name}: {told['simulated_per_cpu_s']:,.0f} requests simulated a CPU second; the "
            f"policy actor is asked {actor['reports_per_s']:.4g} times a second, "
            f"{actor['bytes_per_s'] / 1e3:.4g} kB/s, {actor['tables']} tables"
        )
    made = document["environment"]
    lines += ["", f"Paceline {made['versions']['paceline']}, commit {made['commit']}.", ""]
    return "\n".join(lines)


def slo_json(slo: Slo) -> dict[str, float]:
    return asdict(slo)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
