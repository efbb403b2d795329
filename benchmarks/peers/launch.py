"""Set up and load a worker for every contender that is asked for."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.peers.contenders import OURS, Contender
from benchmarks.peers.environments import (
    OPENVINO,
    ROOT,
    VLLM,
    SetupError,
    draft_ir,
    f16_gguf,
)
from benchmarks.peers.worker import Worker, WorkerError
from deployments.models.catalog import EmbeddedModel

VLLM_VARIABLES = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in the worker's own process
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; its default is half of the machine's memory
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What workers are made from."""

    model: EmbeddedModel
    model_folder: Path
    """In Hugging Face format."""
    draft: Path | None
    """The draft model's folder."""
    folder: Path
    """For environments, weights and logs."""
    config: dict[str, Any]
    """Of a replica: for our own worker."""
    quick: bool


@dataclass(slots=True)
class Crew:
    """All workers, loaded and paused; `end` them, whatever happened."""

    workers: dict[str, Worker] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By worker: versions and what else it said when it was ready."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """By worker: why there is none."""
    _started: list[Worker] = field(default_factory=list)

    def add(self, name: str, start: Callable[[], tuple[Worker, dict[str, Any]]]) -> None:
        """Start a worker and load it, or note why that failed."""
        try:
            worker, settings = start()
            self._started.append(worker)
            self.facts[name] = worker.load(settings)
            self.workers[name] = worker
        except (SetupError, WorkerError) as error:
            self.unavailable[name] = str(error)

    def end(self) -> None:
        for worker in self._started:
            worker.end()


def load_workers(
    crew: Crew, contenders: Iterable[Contender], setting: Setting, console: Console
) -> None:
    """One worker for each peer and mode among `contenders`."""
    for name, contender in {contender.worker: contender for contender in contenders}.items():

        def start(contender: Contender = contender) -> tuple[Worker, dict[str, Any]]:
            return _start(contender, setting, console)

        with console.status(f"loading {name} (log: {_log(setting, contender)})"):
            crew.add(name, start)
        outcome = crew.unavailable.get(name)
        console.print(f"{name}: " + (f"failed: {outcome}" if outcome else "loaded"))


def _log(setting: Setting, contender: Contender) -> Path:
    return setting.folder / f"{contender.worker}.log"


def _start(
    contender: Contender, setting: Setting, console: Console
) -> tuple[Worker, dict[str, Any]]:
    """The process and the settings to load it with. Raises SetupError."""
    python, script, variables = Path(sys.executable), contender.peer, dict[str, str]()
    settings: dict[str, Any] = {
        "mode": contender.mode,
        "model": str(setting.model_folder),
        "draft": None if setting.draft is None else str(setting.draft),
    }
    if contender.peer == OURS:
        script = "ours"
        settings = {"config": setting.config, "quick": setting.quick}
    elif contender.peer == "openvino":
        python = OPENVINO.prepare(setting.folder, console)
        gguf = f16_gguf(setting.model, python, setting.folder, console)
        settings |= {"gguf": str(gguf)}
        if contender.mode == "draft":
            assert setting.draft is not None
            made = draft_ir(setting.draft, gguf, python, setting.folder, console)
            settings |= {"draft": str(made)}
    elif contender.peer == "vllm":
        python, variables = VLLM.prepare(setting.folder, console), VLLM_VARIABLES
    worker = Worker(
        contender.worker,
        [str(python), "-m", f"benchmarks.peers.workers.{script}"],
        cwd=ROOT,
        log=_log(setting, contender),
        environment=variables,
    )
    return worker, settings
