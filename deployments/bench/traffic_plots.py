"""Pictures of traffic: the paper's bars, and its timeline."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from deployments.bench.traffic_results import SettingResult

_AROUND = 2
"""Requests before and after one that its point of the timeline is the mean of."""


def plot_bars(results: Sequence[SettingResult], path: Path) -> None:
    """Mean latency of every arm under every traffic; whiskers from the least segment's to the most.
    As PNG. Raises OSError when it can't be written."""
    arms = list(dict.fromkeys(arm for one in results for arm in one.answers))
    figure = Figure(figsize=(max(6, 1.5 + 1.6 * len(results)), 4.8), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(arms)
    for index, arm in enumerate(arms):
        places, heights, below, above = [], [], [], []
        for place, one in enumerate(results):
            mean = one.mean_latency(arm) if arm in one.answers else None
            if mean is None:
                continue
            parts = [
                sum(a.latency_s for a in whole) / len(whole)
                for part in one.answers[arm]
                if (whole := [answer for answer in part if answer.error is None])
            ]
            places.append(place + (index - (len(arms) - 1) / 2) * width)
            heights.append(mean)
            below.append(max(0.0, mean - min(parts)))
            above.append(max(0.0, max(parts) - mean))
        axes.bar(places, heights, width, yerr=[below, above], capsize=2, label=arm)
    names = [one.setting.name.replace(", ", "\n", 1) for one in results]
    axes.set_xticks(range(len(results)), names, fontsize=8)
    axes.set_ylabel("mean latency, s")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=9)
    figure.savefig(path, dpi=120, format="png")


def plot_timeline(result: SettingResult, path: Path) -> None:
    """Latency by arrival, a line for each arm (a mean over neighbours); the denser phases are
    shaded. As PNG. Raises OSError when it can't be written."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    at_s, middle = 0.0, sorted(interval for _, interval in result.setting.phases)
    for length_s, interval_s in result.setting.phases:
        if interval_s < middle[-1]:
            axes.axvspan(at_s, at_s + length_s, color="gray", alpha=0.15, linewidth=0)
        at_s += length_s
    for index, (arm, parts) in enumerate(result.answers.items()):
        whole = [answer for answer in parts[0] if answer.error is None]
        times = [answer.due_s for answer in whole]
        latencies = [answer.latency_s for answer in whole]
        near = [latencies[max(0, i - _AROUND) : i + _AROUND + 1] for i in range(len(latencies))]
        axes.plot(times, [sum(some) / len(some) for some in near], color=f"C{index}", label=arm)
        axes.plot(times, latencies, ".", color=f"C{index}", alpha=0.3, markersize=4)
    axes.set_xlabel("arrival, s")
    axes.set_ylabel("latency, s")
    axes.set_title(f"{result.setting.name}; shaded: the denser phases", fontsize=10)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    figure.savefig(path, dpi=120, format="png")
