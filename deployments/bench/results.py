"""What benchmarks share: where it ran, how a spread is told, goals, and the JSON file."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from deployments.revision import commit
from engine import files

PACKAGES = ("torch", "transformers", "ray", "deepspeed", "paceline")


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that was to be reached, and the one that was."""

    name: str
    goal: str
    measured: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """Of repeated measurements of one thing."""

    median: float
    minimum: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.minimum:.3g} to {self.maximum:.3g})"


def environment(device: str | None = None) -> dict[str, Any]:
    """Hardware, versions and commit of this run. `device`: where it computes ("cpu", "cuda"); on a
    CPU the GPU beside it is none of its hardware. None: wherever it can."""
    has_gpu = device != "cpu" and torch.cuda.is_available()
    return {
        "cpu": _cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": torch.cuda.get_device_name() if has_gpu else None,
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
        "commit": commit(),
    }


def print_goals(console: Console, goals: Sequence[Goal]) -> None:
    table = Table(title="goals")
    for column in ("name", "goal", "measured", "holds"):
        table.add_column(column)
    for goal in goals:
        table.add_row(goal.name, goal.goal, f"{goal.measured:.3g}", "yes" if goal.holds else "NO")
    console.print(table)


def write_json(path: Path, results: dict[str, Any], goals: Sequence[Goal]) -> None:
    """With where it ran, atomically, so that an interrupted run leaves the last good file."""
    document = {"environment": environment(), **results, "goals": [asdict(g) for g in goals]}
    write_results(path, document)


def write_results(path: Path, document: dict[str, Any]) -> None:
    """A document that tells by itself where it ran."""
    files.write_json(path, document, indent=1)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
