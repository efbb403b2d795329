"""Starting the other ranks: an interface, and processes of this machine behind it."""

import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from engine.config import EngineConfig
from engine.ranks.spec import RankSpec

END_S = 10.0


class Ranks(Protocol):
    """The processes of ranks 1 and up."""

    def start(self, spec: RankSpec, config: EngineConfig) -> None:
        """Start one. Raises OSError, or whatever else keeps it from starting."""

    def ended(self) -> Mapping[int, str]:
        """Ranks whose process ended, with what is known of why."""

    def kill(self, rank: int) -> None:
        """End one at once; harmless when it has ended."""

    def end(self) -> None:
        """Wait a while until all have ended by themselves, and end the others."""


class Processes:
    """Ranks as children of this process, which end with it."""

    def __init__(self, module: str = "engine.ranks.follow") -> None:
        """`module`: what a rank runs."""
        self._module = module
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, spec: RankSpec, config: EngineConfig) -> None:
        """See `Ranks`."""
        process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        self._processes[spec.rank] = process
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(pickle.dumps((spec, config)))

    def ended(self) -> Mapping[int, str]:
        """See `Ranks`."""
        codes = {rank: process.poll() for rank, process in self._processes.items()}
        return {
            rank: f"its process {self._processes[rank].pid} ended with code {code}"
            for rank, code in codes.items()
            if code is not None
        }

    def kill(self, rank: int) -> None:
        """See `Ranks`."""
        process = self._processes.get(rank)
        if process is not None:
            process.kill()

    def end(self) -> None:
        """See `Ranks`."""
        for process in self._processes.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def pids(self) -> dict[int, int]:
        """Process ids by rank."""
        return {rank: process.pid for rank, process in self._processes.items()}
