"""What a replica knows of its kind when it starts: measured cost, and what was learned before.

Both lie on disk. Whoever has no calibration asks the policy actor whether to make one: of several
replicas of a kind one does, and the actor needs no more than that.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.calibrate import cache
from engine.calibrate.grid import default_grid
from engine.calibrate.kind import Kind, machine_kind
from engine.calibrate.measure import calibrate
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import PacelineError
from engine.files import write_json
from policy.board import Introduction

logger = logging.getLogger(__name__)


class Knowledge:
    """Of one replica, whose engine drafts."""

    def __init__(self, config: EngineConfig, folder: Path) -> None:
        """Raises OSError when the models' files can't be read."""
        self._config = config
        self._folder = folder
        self.kind: Kind = machine_kind(config)
        self._calibrated_at_unix_s: float | None = None
        self.introduction = Introduction(
            kind=self.kind.key,
            description=_in_words(self.kind),
            max_batch=config.max_num_seqs,
            max_draft_len=config.max_draft_len,
            calibration=cache.load(folder, self.kind.key),
            learned=self._learned(),
        )

    def calibrate(
        self,
        engine: Engine,
        report: Callable[[str], None],
        may_calibrate: Callable[[Introduction], bool],
    ) -> None:
        """Measure the engine, unless that was done or another replica is at it. An engine that
        can't be measured serves without drafts."""
        if self.introduction.calibration is not None or not may_calibrate(self.introduction):
            return
        report("calibrating")
        try:
            grid = default_grid(self._config, engine.max_model_len)
            found = calibrate(engine, grid, report=_telling(report))
        except (PacelineError, ValueError) as error:
            logger.warning("not calibrated, so nothing is drafted: %s", error)
            return
        cache.store(self._folder, self.kind.key, found, description=self.kind.description)
        self.introduction = replace(self.introduction, calibration=found)

    def calibrated_at_unix_s(self) -> float | None:
        """When this kind was measured, by whichever replica on this machine; None: not yet."""
        if self._calibrated_at_unix_s is None:
            self._calibrated_at_unix_s = cache.measured_at_unix_s(self._folder, self.kind.key)
        return self._calibrated_at_unix_s

    def keep(self, learned: dict[str, Any]) -> None:
        """For the next start of a replica of this kind here."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_json(self._learned_path, learned)
        except OSError as error:
            logger.warning("%s can't be written: %s", self._learned_path, error)

    @property
    def _learned_path(self) -> Path:
        return self._folder / f"{self.kind.key}.learned.json"

    def _learned(self) -> dict[str, Any] | None:
        """Checked by who uses it (`Learner.from_json`)."""
        try:
            told = json.loads(self._learned_path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("%s is not used: %s", self._learned_path, error)
            return None
        return told if isinstance(told, dict) else None


def _in_words(kind: Kind) -> str:
    told = kind.description
    return f"{told['model']}, {told['drafter']}, {told['dtype']}, {told['device']}"


def _telling(report: Callable[[str], None]) -> Callable[[int, int, str], None]:
    """Whole percents, each once: every word goes to another process."""
    said = -1

    def tell(done: int, total: int, _what: str) -> None:
        nonlocal said
        percent = 100 * done // max(1, total)
        if percent != said:
            said = percent
            report(f"calibrating, {percent} %")

    return tell
